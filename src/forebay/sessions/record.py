"""A session as the ledger keeps it: its id, what it was created with, and the requests made of it.

Ids name the gateway that holds the session where several gateways share a queue.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from forebay.sessions.conversation import CompletedTurn
from forebay.sessions.prompt import Prompt

if TYPE_CHECKING:
    from forebay.sessions.conversation import Message

_NAMED = re.compile(r"ses_([0-9a-f]{8})_[0-9a-f]{32}")
_PLAIN = re.compile(r"ses_[0-9a-f]{32}")


def session_id(replica: str, secret: str) -> str:
    """Return the id of a new session; `secret` is what nobody can guess.

    >>> session_id("", "ab" * 16)
    'ses_abababababababababababababababab'
    """
    return f"ses_{replica}_{secret}" if replica else f"ses_{secret}"


def replica_of(session_id: str) -> str | None:
    """Return the gateway that an id names; None where it names none.

    >>> replica_of("ses_0a1b2c3d_" + "ab" * 16), replica_of("ses_" + "ab" * 16)
    ('0a1b2c3d', None)
    """
    found = _NAMED.fullmatch(session_id)
    return found.group(1) if found is not None else None


def is_plain(session_id: str) -> bool:
    """Say whether an id was given by a gateway that worked alone."""
    return _PLAIN.fullmatch(session_id) is not None


class SessionRecord(Struct, frozen=True):
    """What never changes in a session, and the two times."""

    id: str
    owner: str
    """The name of the key that it belongs to; empty without keys."""
    model: str
    system: str | None
    max_tokens: int
    """The most that an answer may take; 0 is no limit of its own."""
    options: dict[str, Any]
    """What else the node is asked with, such as `temperature`."""
    base: tuple[CompletedTurn, ...]
    """The turns that a branch began with."""
    created_at: float
    used_at: float
    life: int = 0
    """How many processes have held it before this one."""


class Recovered(Struct, frozen=True):
    """A session after a restart."""

    record: SessionRecord
    prompts: list[Prompt]
    """In order; their status is how far they had come."""
    events: dict[str, int]
    """The number of the terminal event of each that has one."""


def chat_body(record: SessionRecord, messages: list[Message]) -> bytes:
    """Return the body of a request: OpenAI's chat completion, streamed, with its usage counted."""
    body: dict[str, Any] = {
        "model": record.model,
        "messages": messages,
        **record.options,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if record.max_tokens:
        body["max_tokens"] = record.max_tokens
    return msgspec.json.encode(body)
