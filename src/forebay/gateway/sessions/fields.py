"""The validation of the request bodies of the session routes."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from forebay.api.sessions import ROLES, SESSION_OPTIONS, Prompt, SessionRequest
from forebay.gateway.errors.http_error import HttpError, invalid
from forebay.gateway.http.json_body import convert_fields
from forebay.sessions.conversation import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.api.sessions import MessagePart, SessionMessage

MESSAGES_MAX = 256
OPTIONS_BYTES_MAX, OPTIONS_DEPTH_MAX = 16_384, 32
DEADLINE_MS_MAX = 1e13
"""Three hundred years: what is longer is no deadline."""


class PromptInput(Struct, frozen=True):
    """A valid prompt."""

    messages: tuple[Message, ...]
    deadline_s: float | None


def read_session(fields: dict[str, Any]) -> SessionRequest:
    """Return the fields of a new session; raises HttpError, naming the field."""
    asked = convert_fields(fields, SessionRequest)
    if not asked.model.isprintable():
        raise invalid("`model` contains unprintable characters", "model")
    for name in asked.options:
        if name not in SESSION_OPTIONS:
            known = ", ".join(SESSION_OPTIONS)
            raise invalid(f"`options` may hold {known}", f"options.{name[:64]}")
    try:
        size = len(msgspec.json.encode(asked.options))
    except (RecursionError, ValueError, TypeError):
        raise invalid("`options` is nested too deeply", "options") from None
    if size > OPTIONS_BYTES_MAX or _is_deeper(asked.options, OPTIONS_DEPTH_MAX):
        words = f"`options` is larger than {OPTIONS_BYTES_MAX} bytes, or nested too deeply"
        raise invalid(words, "options")
    return asked


def _is_deeper(value: object, levels: int) -> bool:
    """Say whether a value is nested more than so many levels; looks no deeper than that."""
    inner: Iterable[object] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list):
        inner = value
    else:
        return False
    return levels == 0 or any(_is_deeper(one, levels - 1) for one in inner)


def read_prompt(fields: dict[str, Any]) -> PromptInput:
    """Return the messages and the deadline of a prompt; raises HttpError, naming the field."""
    asked = convert_fields(fields, Prompt)
    if asked.prompt is not None and asked.messages is not None:
        raise invalid("give `prompt` or `messages`, not both", "prompt")
    if asked.messages is not None:
        messages = _messages(asked.messages)
    else:
        if asked.prompt is None:
            raise invalid("give `prompt`, a string, or `messages`", "prompt")
        if not asked.prompt.strip():
            raise invalid("`prompt` is empty", "prompt")
        messages = (Message("user", asked.prompt),)
    return PromptInput(messages, _deadline_s(asked.deadline_ms))


def _messages(given: list[SessionMessage]) -> tuple[Message, ...]:
    if not 1 <= len(given) <= MESSAGES_MAX:
        raise invalid(f"`messages` must hold 1 to {MESSAGES_MAX} messages", "messages")
    for place, message in enumerate(given):
        if message.role not in ROLES:
            raise invalid(f"a role is one of {', '.join(ROLES)}", f"messages[{place}].role")
    if not _text(given[-1].content, f"messages[{len(given) - 1}].content").strip():
        raise invalid("the last message is empty", f"messages[{len(given) - 1}].content")
    if given[-1].role != "user":
        raise invalid("the last message must be the user's", f"messages[{len(given) - 1}].role")
    return tuple(
        Message(message.role, _text(message.content, f"messages[{place}].content"))
        for place, message in enumerate(given)
    )


def _text(content: str | list[MessagePart], param: str) -> str:
    if isinstance(content, str):
        return content
    if any(part.type != "text" for part in content):
        raise HttpError("unsupported", "sessions accept text only", param)
    return "".join(part.text for part in content)


def _deadline_s(given: Any) -> float | None:
    if given is None:
        return None
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not given > 0 or not (isinstance(given, int) or isfinite(given)):
        raise invalid("`deadlineMs` must be a number above 0", "deadlineMs")
    return None if given > DEADLINE_MS_MAX else float(given) / 1000
