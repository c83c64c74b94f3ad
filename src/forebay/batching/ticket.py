"""A request's place in line."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from forebay.batching.errors import Cancelled

if TYPE_CHECKING:
    from forebay.batching.priority import Priority
    from forebay.batching.request import Request


class Ticket:
    """What the queue knows about one request: its place, its size, whether it waits.

    The request carries its ticket, also after it was taken, so that `requeue` finds the old place
    without a table that would have to be emptied: a forgotten request takes its ticket with it.
    Written only under the lock of the queue that made it.
    """

    __slots__ = (
        "cancel",
        "enqueued_s",
        "id",
        "issuer",
        "memory_bytes",
        "priority",
        "registration",
        "request",
        "sequence",
        "skips",
    )

    def __init__(
        self, issuer: object, request: "Request", priority: "Priority", memory_bytes: int
    ) -> None:
        self.issuer = issuer  # stands for the queue that made it, without keeping it alive
        self.id = request.id
        self.cancel = request.cancel
        self.priority = priority
        self.sequence = 0  # order of arrival; set once, when it first joins
        self.memory_bytes = memory_bytes
        self.enqueued_s = 0.0
        self.skips = 0  # calls of get_requests that took something behind it instead
        self.request: Request | None = None  # only while it waits; so a ticket keeps no prompt
        self.registration: object = None  # with `cancel`; only while it waits

    @property
    def cancelled(self) -> bool:
        """Say whether the request's token has been cancelled."""
        return self.cancel is not None and self.cancel.cancelled

    def join(self, request: "Request", withdraw: Callable[["Ticket"], object]) -> None:
        """Begin to wait; from here on a cancelled token leads to `withdraw(ticket)`.

        Raises `Cancelled`, leaving nothing registered, if the token has been cancelled.
        """
        if self.cancel is not None:
            self.registration = self.cancel.register(lambda: withdraw(self))
            if self.cancel.cancelled:
                self._unregister()
                raise Cancelled(f"request {self.id!r} was cancelled before it could wait")
        self.request = request
        request._ticket = self

    def leave(self, *, taken: bool) -> "Request":
        """Wait no longer. A request that was taken keeps its ticket; any other gives it up."""
        request = self.request
        assert request is not None, f"{self.id!r} does not wait"
        self.request = None
        if self.registration is not None:
            self._unregister()
        if not taken:
            request._ticket = None
        return request

    def _unregister(self) -> None:
        if self.cancel is not None:
            self.cancel.unregister(self.registration)
            self.registration = None
