"""What a gateway says of itself, and its last day by the minute."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from forebay.api.fields import Count, ResponseBody, Seconds, Sometimes, one_of
from forebay.api.queue import Mode


class Health(ResponseBody, frozen=True):
    """The gateway is alive."""

    status: Annotated[str, one_of("ok")]
    version: str = ""


class Ready(ResponseBody, frozen=True):
    """Requests may be sent here."""

    status: Literal["ready"] = "ready"
    mode: Sometimes[Mode] = None
    """`coordinated`: a leader decides for all; `seeking`: there is none yet; `alone`: the store is
    out of reach; `cut_off`: for this gateway only."""


class Limits(ResponseBody, frozen=True, rename="camel"):
    """Where the gateway's limits are."""

    max_pending_prompts_per_session: int | None = None
    prompt_deadline_ms: int | None = None
    max_sessions: Count | None = None
    queue_max_size: Count | None = None
    max_wait_seconds: Seconds | None = None
    body_max_bytes: Count | None = None


class Capabilities(ResponseBody, frozen=True):
    """What the gateway offers. `limits.max_pending_prompts_per_session` is a `max_pending`."""

    version: str
    limits: Limits = Limits()
    """Null is no limit."""
    priorities: tuple[str, ...] = ()
    """The classes, most urgent first."""
    families: dict[str, tuple[str, ...]] = {}
    """The routes of each dialect."""
    build: Annotated[str, one_of("compiled", "plain")] = ""
    """Whether the hot path runs as C extensions or as plain Python."""
    versions: dict[str, str] = {}
    routes: list[str] = []
    """Every path there is."""


Column: TypeAlias = list[float | None]


class DayHistory(ResponseBody, frozen=True):
    """Up to 24 hours by the minute, as columns of equal length."""

    priorities: list[str]
    step_seconds: Count
    at: list[Count]
    """When each minute began, in seconds since 1970; the oldest first. The other columns are as
    long."""
    depth: dict[str, Column]
    """Waiting on average, by class."""
    processing: Column
    served: Column
    rejected: Column
    wait_p50_seconds: Column
    """Null where nobody waited."""
    wait_p95_seconds: Column
    tokens_per_second: Column
    wait_p50_seconds_by_priority: dict[str, Column]
    """Null where no request of that class ended, and in minutes that an older version stored."""
    wait_p95_seconds_by_priority: dict[str, Column]
