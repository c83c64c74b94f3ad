"""What was measured of one request."""

from __future__ import annotations

import msgspec
from msgspec import Struct

UNFINISHED = "unfinished"
"""Still under way when the run was broken off: neither a success nor a failure."""
NOT_SENT = "not_sent"
"""Due, but as many as `max_in_flight` were under way."""
TIMEOUT = "timeout"
CONNECT_FAILED = "connect_failed"
CONNECTION_LOST = "connection_lost"
NO_ANSWER = (NOT_SENT, UNFINISHED, TIMEOUT, CONNECT_FAILED, CONNECTION_LOST)
"""Nothing that the server said ended these."""


class RequestSample(Struct, array_like=True):
    """One request. Times are in seconds, from when it should have been sent unless said otherwise.

    Written as a row; the columns are the names of the fields, in this order.
    """

    at_s: float
    """When it should have been sent, from the start of the run."""
    user: str
    priority: str
    code: str = ""
    """"" for a success, else why it failed."""
    status: int = 0
    """HTTP's; 0 where none came."""
    late_s: float = 0.0
    """How much later than it should this program sent it."""
    ttft_s: float | None = None
    """Until the first token; None of an answer in one piece."""
    total_s: float | None = None
    """Until the end of the answer, good or bad."""
    wait_s: float | None = None
    """In the server's queue, as the server says; None where it does not."""
    gap_s: float | None = None
    """Between tokens, on average."""
    gap_max_s: float | None = None
    """The longest gap between two pieces."""
    tokens_in: int | None = None
    tokens_out: int = 0
    queued: bool | None = None
    """Whether the server had it wait; None where it does not say."""
    node: str = ""
    retries: int = 0

    @property
    def is_ok(self) -> bool:
        """Say whether it was answered in full."""
        return not self.code

    @property
    def is_error(self) -> bool:
        """Say whether it was sent and failed."""
        return bool(self.code) and self.code not in (NOT_SENT, UNFINISHED)

    @property
    def is_answered(self) -> bool:
        """Say whether the server brought it to its end, well or with an error."""
        return self.code not in NO_ANSWER

    @property
    def ended_s(self) -> float | None:
        """Return when it was over, from the start of the run; None where it was not."""
        return None if self.total_s is None else self.at_s + self.total_s


COLUMNS = tuple(field.name for field in msgspec.structs.fields(RequestSample))
