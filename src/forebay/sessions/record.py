"""A session as it was made, and as the last process left it: what the ledger keeps."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from forebay.sessions.conversation import Turn
from forebay.sessions.prompt import Prompt


class SessionRecord(Struct, frozen=True):
    """What does not change in a session's life."""

    id: str
    owner: str
    """The name of the key that it belongs to; empty without keys."""
    model: str
    system: str | None
    max_tokens: int
    """The most that an answer may take; 0 is no limit of its own."""
    options: dict[str, Any]
    """What else the node is asked with, such as `temperature`."""
    base: tuple[Turn, ...]
    """The turns that a branch began with."""
    created_at: float
    used_at: float
    life: int = 0
    """How many processes have held it before."""


class Recovered(Struct, frozen=True):
    """A session after a restart."""

    record: SessionRecord
    prompts: list[Prompt]
    """In order; their status says how far they had come."""
    events: dict[str, int]
    """The number of the terminal event of each that has one."""
