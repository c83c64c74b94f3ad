"""The errors of the library queue. Messages name the request and the numbers; codes are stable."""

from forebay.errors import ForebayError, NotAllowed, Rejected


class QueueFull(Rejected):
    """As many requests wait as `capacity` allows. Try again when some have been taken."""

    code = "queue_full"


class RequestTooLarge(NotAllowed):
    """The request needs more memory than `memory_limit`: it could never be run."""

    code = "request_too_large"


class DuplicateRequest(NotAllowed):
    """A request with this id is waiting already."""

    code = "duplicate_request"


class NotTaken(NotAllowed):
    """The request was never taken from this queue, so it has no old place to return to."""

    code = "not_taken"


class QueueClosed(NotAllowed):
    """The queue was closed; it never opens again."""

    code = "queue_closed"


class Cancelled(ForebayError):
    """A `CancelToken` was cancelled: the caller's own wish, nobody's fault."""

    code = "cancelled"
