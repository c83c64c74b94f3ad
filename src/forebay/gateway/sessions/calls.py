"""Build the relay's call of a prompt, with the session's model and the limits of its key.

Built when the prompt is at the head of its session, not when it was accepted: aliases, keys and
nodes may have changed in between, and a key that was revoked must not run anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.core import Arrived
from forebay.relay.call import InferenceCall
from forebay.relay.fields import find_model, prompt_tokens
from forebay.relay.openai import OPENAI
from forebay.relay.problem import WORDS, Problem

if TYPE_CHECKING:
    from forebay.gateway.hot.admission import Admission
    from forebay.gateway.hot.keys import KeyRing
    from forebay.sessions.prompt import Prompt
    from forebay.sessions.record import SessionRecord

FAMILY = replace(OPENAI, comments=False)
"""Without the comments that keep a connection open: only the session reads this stream."""
TARGET = b"/v1/chat/completions"
ROUTE = "/session/{id}/prompt"


class SessionCalls:
    """Builds the calls of prompts."""

    def __init__(self, admission: Admission, keys: KeyRing) -> None:
        self._admission = admission
        self._keys = keys

    def make(self, record: SessionRecord, prompt: Prompt, body: bytes) -> InferenceCall | Problem:
        """Return the call, or why there is none."""
        sender, key = prompt.sender, None
        if self._keys:
            key = self._keys.named(sender.key)
            if key is None:
                return Problem("unauthorized", WORDS["unauthorized"])
        if not self._admission.may_use(key, record.model):
            return Problem("forbidden", "this key may not use this model", "model")
        model, fallbacks = self._admission.resolve(record.model)
        if key is not None and key.models:
            fallbacks = tuple(name for name in fallbacks if name in key.models)
        headers = b"content-type: application/json\r\nx-request-id: %b\r\n" % prompt.id.encode()
        if sender.trace:
            headers += b"traceparent: %b\r\n" % sender.trace.encode("latin-1")
        arrival = Arrived(
            id=prompt.id,
            model=model,
            family=FAMILY.name,
            user=sender.user,
            priority=sender.priority,
            prompt_tokens=prompt_tokens(body),
            output_limit=record.max_tokens,
            size_bytes=len(body),
            weight=key.weight if key is not None else 1.0,
            affinity=record.id,
            max_wait_s=sender.max_wait_s,
            stream=True,
            key=sender.key,
            key_running_max=key.max_running if key is not None else 0,
            fallbacks=fallbacks,
            patient=True,
        )
        return InferenceCall(
            arrival,
            FAMILY,
            route=ROUTE,
            target=TARGET,
            body=body,
            asked_model=record.model,
            header_block=headers,
            credentials=sender.credentials,
            model_span=find_model(body),
        )
