"""What is said in `/openapi.json` about one method of one path."""

from typing import NamedTuple


class Operation(NamedTuple):
    """One method of one path."""

    path: str
    method: str
    summary: str
    tag: str
    answer: str = ""
    """The schema of a good answer; "" for one without JSON."""
    codes: tuple[str, ...] = ()
    """What can go wrong, beside what can always go wrong."""
    status: int = 200
    body: str = ""
    """The schema of the request body; "" for none."""
    headers: tuple[str, ...] = ("Accept-Language",)
    media: str = "application/json"
    """The content type of a good answer; "" for none."""
    body_media: str = "application/json"
    """The content type of the request body."""
    needs_body: bool = True
    """Whether the request body, where there is one, must be sent."""
    may_be_empty: bool = False
    """Whether there may be nothing to say: 204."""
    query: tuple[str, ...] = ()
    """Names of `QUERY_PARAMETERS`."""
