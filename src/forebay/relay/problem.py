"""What goes wrong, as a value: a stable code, words for people, numbers for programs.

Which HTTP status a code has is the gateway's business (`gateway/errors`).
"""

from msgspec import Struct

WORDS = {
    "cancelled": "the request was cancelled",
    "unauthorized": "the API key was revoked",
    "shutting_down": "the gateway is shutting down",
}
"""Why someone else ends a request."""


class Problem(Struct, frozen=True, gc=False):
    """Why a request gets no answer of a node."""

    code: str
    message: str
    param: str | None = None
    """The field or header that is at fault."""
    retry_after_s: float | None = None
    """When trying again makes sense; None while nothing has been measured."""
    details: dict[str, object] = {}
    """More members of the error body, such as `waited_seconds`."""


class Unsupported(Struct, frozen=True, gc=False):
    """A field that asks for something this gateway does not offer."""

    param: str
    message: str


def node_failed(cause: str, node: str, attempts: int) -> Problem:
    """Return the problem of a request whose node, or last node, failed."""
    return Problem(
        "node_failed",
        f"the node failed: {cause}",
        details={"cause": cause, "node": node, "attempts": attempts},
    )
