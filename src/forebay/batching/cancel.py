"""A cancellation token: set once, with callbacks.

How it works without a lock. Callbacks live in a dict. `register` puts the callback in first and
looks at the flag second; `cancel` sets the flag first and empties the dict second. Whatever the
order in which two threads do this, at least one of them sees the other, so no cancel is lost;
and a callback is called by whoever pops it from the dict, which only one can, so it is called
once. Setting, popping and `popitem` of a dict are atomic in CPython.

Because there is no lock, `cancel` may be called from anywhere, without any order to keep: from a
callback, from a signal handler or a finaliser that interrupts this very module, or while the
caller holds a lock that a callback's owner uses elsewhere.
"""

from collections.abc import Callable


class CancelToken:
    """Tell whoever holds this token that its work is no longer wanted.

    >>> token = CancelToken()
    >>> registration = token.register(lambda: print("cancelled"))
    >>> token.cancelled
    False
    >>> token.cancel()
    cancelled
    >>> token.cancel()      # a second time changes nothing
    >>> token.cancelled, token.registered
    (True, 0)
    """

    __slots__ = ("_callbacks", "_cancelled")

    def __init__(self) -> None:
        self._callbacks: dict[object, Callable[[], object]] = {}
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Say whether `cancel` has been called."""
        return self._cancelled

    @property
    def registered(self) -> int:
        """Return how many callbacks are still registered; 0 when nobody listens any more."""
        return len(self._callbacks)

    def cancel(self) -> None:
        """Cancel, and call every registered callback once, here and now, the newest first.

        May be called again, and by several threads at once: each callback is still called once,
        and a second caller may return while the first is inside one. If callbacks raise, the
        rest are called all the same, and then an `ExceptionGroup` of their errors is raised.
        """
        self._cancelled = True
        errors = []
        while True:
            try:
                _, callback = self._callbacks.popitem()
            except KeyError:  # none left
                break
            try:
                callback()
            except Exception as error:
                errors.append(error)
        if errors:
            raise ExceptionGroup("callbacks of a CancelToken failed", errors)

    def register(self, callback: Callable[[], object]) -> object:
        """Have `callback` called on cancel; at once, if that has happened. Return its registration.

        It is called in the thread that cancels, so it should be quick and must not block.
        """
        registration = object()
        self._callbacks[registration] = callback
        if self._cancelled and self.unregister(registration):
            callback()
        return registration

    def unregister(self, registration: object) -> bool:
        """Take a callback back. False if it was called, is being called, or was taken back before.

        >>> token = CancelToken()
        >>> registration = token.register(print)
        >>> token.unregister(registration), token.unregister(registration)
        (True, False)
        """
        return self._callbacks.pop(registration, None) is not None
