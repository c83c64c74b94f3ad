"""What a node is asked for a turn: OpenAI's chat request, streamed, with its cost counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from forebay.sessions.conversation import Message
    from forebay.sessions.record import SessionRecord

OPTIONS = (
    "temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "stop", "presence_penalty",
    "frequency_penalty", "repeat_penalty", "logit_bias", "response_format", "reasoning_effort",
    "chat_template_kwargs",
)  # fmt: skip
"""What a session may set beside the model, its system prompt and its limit."""


def chat_body(record: SessionRecord, messages: list[Message]) -> bytes:
    """Return the body of a request."""
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
