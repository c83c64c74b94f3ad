"""The sessions of `/openapi.json`: their routes and what they hold."""

from __future__ import annotations

from typing import Final

from forebay.gateway.openapi.operations import WITH_A_KEY, Operation, query
from forebay.gateway.openapi.schemas import (
    BOOLEAN,
    COUNT,
    INTEGER_OR_NULL,
    SECONDS,
    TEXT,
    TEXT_OR_NULL,
    Schema,
    closed,
    listed,
    record,
    reference,
    said,
)
from forebay.gateway.sessions.fields import ROLES
from forebay.sessions.record import OPTIONS

_STORE: Final = (*WITH_A_KEY, "store_unavailable", "shutting_down")
_ONE: Final = (*_STORE, "session_not_found", "replica_unavailable", "replica_lost")

OPERATIONS: Final = (
    Operation("post", "/session", "Create a session", "SessionMade",
        (*_STORE, "too_many_sessions", "forbidden", "model_not_found"), 201, "SessionRequest"),
    Operation("get", "/session",
        "The caller's sessions, for an admin everybody's, newest first; without keys, for this "
        "machine only", "SessionList", (*_STORE, "forbidden"), query=(
            query("limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}),
            query("before", TEXT, "What `next` says, for more."))),
    Operation("get", "/session/{session_id}", "The state of a session", "Session", _ONE),
    Operation("delete", "/session/{session_id}", "End a session and everything in it",
        "SessionClosed", (*_ONE, "session_closing")),
    Operation("post", "/session/{session_id}/prompt", "Accept a prompt; its end comes as an event",
        "PromptAccepted",
        (*_ONE, "session_closing", "history_too_large", "prompt_queue_full"), 202, "Prompt",
        headers=("Accept-Language", "X-Forebay-Priority", "X-Forebay-Max-Wait")),
    Operation("get", "/session/{session_id}/events",
        "Follow a session; see the reference of events", codes=_ONE, media="text/event-stream",
        headers=("Accept-Language", "Last-Event-ID")),
    Operation("get", "/session/{session_id}/messages", "What the session remembers",
        "SessionMessages", _ONE),
    Operation("get", "/session/{session_id}/pending-prompts", "The prompts that wait or run",
        "PendingPrompts", _ONE),
    Operation("delete", "/session/{session_id}/pending-prompts/{prompt_id}",
        "Remove a queued prompt; it counts as pending until its turn would have come",
        "PromptRemoved", (*_ONE, "prompt_not_found", "conflict")),
    Operation("post", "/session/{session_id}/cancel",
        "Cancel the running prompt; those behind it go on", "PromptCancelled", _ONE,
        body="CancelRequest", needs_body=False),
    Operation("post", "/session/{session_id}/branch",
        "Create a session that continues this one; answers when its turn comes", "SessionMade",
        (*_ONE, "session_closing", "too_many_sessions", "branch_queue_full"), 201),
    Operation("get", "/session/{session_id}/turns/{prompt_id}", "The outcome of a prompt",
        "SessionTurn", (*_ONE, "prompt_not_found")),
    Operation("post", "/acp", "Sessions over JSON-RPC 2.0", "RpcAnswer", WITH_A_KEY,
        body="RpcCall", may_be_empty=True),
)  # fmt: skip

_ID: Final = {"sessionId": TEXT}
_LIMIT: Final = said("Prompts that may be pending; null is no limit.", INTEGER_OR_NULL)
_EVENT: Final[dict[str, Schema]] = {
    "lastEventId": said("Events after this number are what is still to come.", COUNT),
    "eventEpoch": said("Changes when the gateway has been restarted.", TEXT),
}
_ERROR: Final[Schema] = {
    "anyOf": [
        record({"code": TEXT, "message": TEXT, "retryAfterMs?": INTEGER_OR_NULL}),
        {"type": "null"},
    ]
}
_MESSAGE: Final = record({
    "role": {"enum": list(ROLES)},
    "content": said("A text, or a list of parts of type `text`.", {}),
})  # fmt: skip

SCHEMAS: Final[dict[str, Schema]] = {
    "SessionRequest": closed({
        "model": {"type": "string", "minLength": 1, "maxLength": 512},
        "system?": said("What the model is told first, always.", TEXT_OR_NULL),
        "maxTokens?": said("The most that one answer may take.",
            {"type": ["integer", "null"], "minimum": 1, "maximum": 10_000_000}),
        "options?": {
            "type": "object",
            "description": "What else the node is asked with.",
            "properties": {name: {} for name in OPTIONS},
            "additionalProperties": False,
        },
    }),
    "SessionMade": record(_ID),
    "SessionClosed": record({**_ID, "state": {"const": "closed"}}),
    "SessionList": record({
        "data": listed(record({
            **_ID,
            "model": TEXT,
            "status": {"enum": ["idle", "queued", "running", "closing"]},
            "pending": said("Prompts that wait or run.", COUNT),
            "turns": COUNT,
            "createdAt": said("Seconds since 1970.", SECONDS),
            "usedAt": SECONDS,
            "owner?": said("The name of its key; for admins only.", TEXT),
        })),
        "has_more": BOOLEAN,
        "next?": said("The value of `before` for the next page.", TEXT),
        "incomplete?": said("Gateways that did not list theirs in time.", listed(TEXT)),
    }),
    "Session": record({
        **_ID,
        "model": TEXT,
        "system": TEXT_OR_NULL,
        "maxTokens": INTEGER_OR_NULL,
        "options": {"type": "object"},
        "state": {"enum": ["open", "closing"]},
        "pendingCount": said("Prompts that count against the limit.", COUNT),
        "queuedCount": said("Those of them that wait.", COUNT),
        "limit": _LIMIT,
        "activePromptId": TEXT_OR_NULL,
        "turns": said("Completed turns that are remembered.", COUNT),
        "droppedTurns": said("Turns that no longer fitted.", COUNT),
        "contextTokens": said("What fits into the model's context; null where no node says.",
            INTEGER_OR_NULL),
        "createdAt": said("Seconds since 1970.", SECONDS),
        **_EVENT,
    }),
    "Prompt": closed({
        "prompt?": said("What the user says; or give `messages`.", TEXT_OR_NULL),
        "messages?": {"type": ["array", "null"], "items": _MESSAGE},
        "deadlineMs?": said("May only shorten `sessions.prompt_deadline_ms`.",
            {"type": ["number", "null"], "exclusiveMinimum": 0}),
    }),
    "CancelRequest": closed({
        "promptId?": said("End this prompt only, if it is the one that runs.", TEXT_OR_NULL),
    }),
    "PromptAccepted": record({"promptId": TEXT, **_EVENT}),
    "PromptQueueFull": record({
        "code": {"const": "prompt_queue_full"}, "error": TEXT, **_ID, "limit": COUNT,
        "pendingCount": COUNT,
    }),
    "SessionMessages": record({
        **_ID,
        "messages": listed(record({"role": TEXT, "content": TEXT})),
    }),
    "PendingPrompts": record({
        **_ID,
        "limit": _LIMIT,
        "pendingCount": COUNT,
        "prompts": listed(record({
            "promptId": TEXT,
            "text": said("The beginning of what it says.", TEXT),
            "queuedAt": SECONDS,
            "state": {"enum": ["queued", "running"]},
            "originator": said("The user who sent it.", TEXT),
        })),
    }),
    "PromptRemoved": record({
        "promptId": TEXT,
        "removed": said("False where it was over already.", BOOLEAN),
    }),
    "PromptCancelled": record({"promptId": TEXT_OR_NULL, "cancelled": BOOLEAN}),
    "SessionTurn": record({
        "promptId": TEXT,
        "status": {"enum": ["queued", "running", "completed", "failed", "cancelled"]},
        "error": _ERROR,
        "text": TEXT_OR_NULL,
        "finishReason": TEXT_OR_NULL,
        "usage": {"type": ["object", "null"]},
    }),
    "RpcCall": {
        "description": "A call, or a batch of at most 64 of them.",
        "anyOf": [reference("RpcRequest"), listed(reference("RpcRequest"))],
    },
    "RpcRequest": record({
        "jsonrpc": {"const": "2.0"},
        "id?": {"type": ["string", "number", "null"]},
        "method": said("`session/new`, `session/prompt`, `session/cancel`, `session/branch`.",
            TEXT),
        "params?": {"type": "object"},
    }),
    "RpcAnswer": {
        "description": "An answer for each call that has an id; 204 where none has.",
        "anyOf": [{"type": "object"}, listed({"type": "object"})],
    },
}  # fmt: skip
