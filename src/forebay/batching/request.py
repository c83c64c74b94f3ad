"""What waits in the library queue."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.batching.cancel import CancelToken

if TYPE_CHECKING:
    from forebay.batching.priority import Priority
    from forebay.batching.ticket import Ticket

DEFAULT_MAX_TOKENS = 256
"""What a `max_tokens` of zero or less means: the usual length of an answer, not "without end"."""


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

    _ticket: "Ticket | None" = field(default=None, init=False, repr=False)
    """Its place in line; written by the queue alone, under the queue's lock."""

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise TypeError(f"id must be a str, not {self.id!r}")
        if not self.id:
            raise ValueError("id must not be empty")
        if not isinstance(self.max_tokens, int) or isinstance(self.max_tokens, bool):
            raise TypeError(f"max_tokens must be a whole number, not {self.max_tokens!r}")
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
