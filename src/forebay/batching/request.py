"""What waits in the library queue."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from forebay.batching.cancel import CancelToken
from forebay.batching.errors import Cancelled

DEFAULT_MAX_TOKENS = 256
"""What a `max_tokens` of zero or less means: the usual length of an answer, not "without end"."""


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
        "is_charged",
        "issuer",
        "memory_bytes",
        "priority",
        "registration",
        "request",
        "sequence",
        "skips",
        "user",
    )

    def __init__(
        self, issuer: object, request: "Request", priority: "Priority", memory_bytes: int
    ) -> None:
        self.issuer = issuer  # stands for the queue that made it, without keeping it alive
        self.id = request.id
        self.user = request.user
        self.is_charged = False  # whether its user has paid for it: it was served
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


class Priority(IntEnum):
    """How urgent a request is. A higher one is always served first; equals in order of arrival.

    Strictly so: as long as higher ones keep coming, lower ones wait.

    >>> Priority.URGENT > Priority.HIGH > Priority.NORMAL > Priority.LOW
    True
    """

    LOW = 0
    NORMAL = 1
    HIGH = 2
    URGENT = 3


@dataclass(slots=True, eq=False)
class Request:
    """One prompt that waits to be run. Do not change it while it waits.

    Two requests are equal only if they are the same object. One request waits in one queue at a
    time.

    >>> request = Request("r1", "Why is the sky blue?", max_tokens=0)
    >>> request.max_tokens
    256
    >>> Request("", "Why?")
    Traceback (most recent call last):
    ValueError: id must not be empty
    """

    id: str
    """Names the request; no two with the same id wait in one queue."""

    prompt: str | Sequence[int]
    """The text, or the tokens it was made into already (then no tokenizer is asked)."""

    max_tokens: int = DEFAULT_MAX_TOKENS
    """How many tokens may be generated; zero or less means `DEFAULT_MAX_TOKENS`."""

    cancel: CancelToken | None = None
    """Cancelling it takes the request out of the queue, if it still waits."""

    payload: object = None
    """Anything the engine wants to find again, such as where to send the answer."""

    user: str = ""
    """Whom a queue with `fairness="round_robin"` shares between."""

    _ticket: "Ticket | None" = field(default=None, init=False, repr=False)
    """Its place in line; written by the queue alone, under the queue's lock."""

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise TypeError(f"id must be a str, not {self.id!r}")
        if not self.id:
            raise ValueError("id must not be empty")
        if not isinstance(self.max_tokens, int) or isinstance(self.max_tokens, bool):
            raise TypeError(f"max_tokens must be a whole number, not {self.max_tokens!r}")
        if not isinstance(self.user, str):
            raise TypeError(f"user must be a str, not {self.user!r}")
        if self.cancel is not None and not isinstance(self.cancel, CancelToken):
            raise TypeError(f"cancel must be a CancelToken or None, not {self.cancel!r}")
        if self.max_tokens <= 0:
            self.max_tokens = DEFAULT_MAX_TOKENS

    @property
    def memory_bytes(self) -> int | None:
        """Return the estimate made at `enqueue`, in bytes; None if it has no place in a queue."""
        ticket = self._ticket  # read once: another thread may remove the request meanwhile
        return None if ticket is None else ticket.memory_bytes

    @property
    def priority(self) -> "Priority | None":
        """Return the priority it was enqueued with; None if it has no place in a queue."""
        ticket = self._ticket  # read once: another thread may remove the request meanwhile
        return None if ticket is None else ticket.priority

    @property
    def enqueued_s(self) -> float | None:
        """Return the clock's reading at `enqueue`, in seconds; None if it has no place."""
        ticket = self._ticket  # read once: another thread may remove the request meanwhile
        return None if ticket is None else ticket.enqueued_s
