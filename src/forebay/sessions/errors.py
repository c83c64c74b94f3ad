"""Why a session rejects a request, as exceptions that carry the problem."""

from __future__ import annotations

from forebay.relay.problem import Problem

RETRY_AFTER_S = 5.0
"""The `Retry-After` of clients over the cap: a turn takes about that long."""


class SessionRejected(Exception):
    """Nothing was accepted."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class PromptQueueFull(SessionRejected):
    """The session has as many prompts pending as it may."""

    def __init__(self, session_id: str, limit: int, pending_count: int) -> None:
        self.session_id = session_id
        self.limit = limit
        self.pending_count = pending_count
        words = f"this session has {pending_count} prompts pending, and may have {limit}"
        super().__init__(Problem("prompt_queue_full", words, None, RETRY_AFTER_S))


def session_closing() -> SessionRejected:
    """Reject anything new in a session that is being closed."""
    return SessionRejected(Problem("session_closing", "this session is closing"))


def session_not_found() -> SessionRejected:
    """Reject an unknown id and one of somebody else alike, so that nobody can tell which it is."""
    return SessionRejected(
        Problem("session_not_found", "there is no session with this id; POST /session creates one")
    )


def prompt_not_found() -> SessionRejected:
    """Reject an id that this session does not have, or no longer remembers."""
    return SessionRejected(Problem("prompt_not_found", "this session has no prompt with this id"))


def shutting_down() -> SessionRejected:
    """Reject anything new while the gateway drains."""
    return SessionRejected(Problem("shutting_down", "the gateway is shutting down"))


def history_too_large(needed: int, room: int, param: str = "prompt") -> SessionRejected:
    """Reject what cannot fit into the context beside any answer."""
    what = "the system prompt takes" if param == "system" else "system prompt and prompt take"
    words = f"{what} about {needed} tokens; there is room for {room} beside an answer"
    return SessionRejected(Problem("history_too_large", words, param))
