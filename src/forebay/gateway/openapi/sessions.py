"""The sessions of `/openapi.json`: their routes and what they hold."""

from __future__ import annotations

from typing import Final

from forebay.api.sessions import (
    CancelRequest,
    PendingPrompts,
    Prompt,
    PromptAccepted,
    PromptCancelled,
    PromptRemoved,
    RpcAnswer,
    RpcCall,
    Session,
    SessionClosed,
    SessionList,
    SessionMade,
    SessionMessages,
    SessionRequest,
    SessionTurn,
)
from forebay.gateway.openapi.operations import WITH_A_KEY, Operation, query
from forebay.gateway.openapi.schemas import TEXT

_STORE: Final = (*WITH_A_KEY, "store_unavailable", "shutting_down")
_ONE: Final = (*_STORE, "session_not_found", "replica_unavailable", "replica_lost")

OPERATIONS: Final = (
    Operation("post", "/session", "Create a session", SessionMade,
        (*_STORE, "too_many_sessions", "forbidden", "model_not_found"), 201, SessionRequest),
    Operation("get", "/session",
        "The caller's sessions, for an admin everybody's, newest first; without keys, for this "
        "machine only", SessionList, (*_STORE, "forbidden"), query=(
            query("limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}),
            query("before", TEXT, "What `next` says, for more."))),
    Operation("get", "/session/{session_id}", "The state of a session", Session, _ONE),
    Operation("delete", "/session/{session_id}", "End a session and everything in it",
        SessionClosed, (*_ONE, "session_closing")),
    Operation("post", "/session/{session_id}/prompt", "Accept a prompt; its end comes as an event",
        PromptAccepted,
        (*_ONE, "session_closing", "history_too_large", "prompt_queue_full"), 202, Prompt,
        headers=("Accept-Language", "X-Forebay-Priority", "X-Forebay-Max-Wait")),
    Operation("get", "/session/{session_id}/events",
        "Follow a session; see the reference of events", codes=_ONE, media="text/event-stream",
        headers=("Accept-Language", "Last-Event-ID")),
    Operation("get", "/session/{session_id}/messages", "What the session remembers",
        SessionMessages, _ONE),
    Operation("get", "/session/{session_id}/pending-prompts", "The prompts that wait or run",
        PendingPrompts, _ONE),
    Operation("delete", "/session/{session_id}/pending-prompts/{prompt_id}",
        "Remove a queued prompt; it counts as pending until its turn would have come",
        PromptRemoved, (*_ONE, "prompt_not_found", "conflict")),
    Operation("post", "/session/{session_id}/cancel",
        "Cancel the running prompt; those behind it go on", PromptCancelled, _ONE,
        body=CancelRequest, needs_body=False),
    Operation("post", "/session/{session_id}/branch",
        "Create a session that continues this one; answers when its turn comes", SessionMade,
        (*_ONE, "session_closing", "too_many_sessions", "branch_queue_full"), 201),
    Operation("get", "/session/{session_id}/turns/{prompt_id}", "The outcome of a prompt",
        SessionTurn, (*_ONE, "prompt_not_found")),
    Operation("post", "/acp", "Sessions over JSON-RPC 2.0", RpcAnswer, WITH_A_KEY,
        body=RpcCall, may_be_empty=True),
)  # fmt: skip
