"""`[sessions]`: conversations that the gateway holds."""

from math import isinf
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from forebay.settings.addresses import DatabaseUrl
from forebay.settings.errors import refusal
from forebay.settings.section import AmountAboveZero, Count, CountFromOne, Section

NO_LIMIT = 0


def _cap(given: object) -> int:
    """Return the cap as a whole number; infinity, and 0, are no limit."""
    if isinstance(given, str) and given.strip().lower() in ("inf", "+inf", "infinity"):
        return NO_LIMIT
    if isinstance(given, float) and given >= 0:
        if isinf(given):
            return NO_LIMIT
        given = int(given) if given.is_integer() else given
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise refusal(
            "is not a whole number from 0 on", "write one, such as 5; 0 and inf are no limit"
        )
    return given


Cap = Annotated[
    int,
    BeforeValidator(_cap),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"const": "inf"}]}),
]


class SessionsSettings(Section):
    """Conversations that the gateway holds."""

    max_pending_prompts: Cap = Field(default=5, examples=[5])
    """Prompts one session may have pending, the running one included; 0 and inf are no limit.
    Negative, fractional and not-a-number values are refused."""

    prompt_deadline_ms: Count = 0
    """Longest time from accepting a prompt to the end of its turn, in milliseconds; 0 is no
    deadline. A prompt may ask for less, not for more."""

    max_sessions: CountFromOne = 1000
    """Sessions held at once; more are answered 503. At least 1. Of gateways that share a queue,
    each holds that many."""

    idle_seconds: AmountAboveZero = 86_400.0
    """How long a session is kept with nothing happening in it, in seconds (a day); above 0."""

    database: DatabaseUrl = Field(default="", repr=False)
    """Database that the sessions are kept in, as a URL. Empty: beside the jobs, which is the same
    PostgreSQL, or another SQLite file (`forebay.sessions.db` beside `forebay.db`). A file has one
    gateway at a time; a PostgreSQL database has one, or all those that share a queue
    (`coordination.url`)."""
