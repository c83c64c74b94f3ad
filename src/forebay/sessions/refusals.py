"""Why a session says no, as exceptions that carry the problem; nothing has been accepted then."""

from __future__ import annotations

from forebay.relay.problem import Problem

RETRY_AFTER_S = 5.0
"""What specification 2 tells clients over the cap: a turn takes about that long."""


class Refusal(Exception):
    """The answer is no."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class PromptQueueFull(Refusal):
    """The session has as many prompts pending as it may."""

    def __init__(self, session_id: str, limit: int, pending_count: int) -> None:
        self.session_id = session_id
        self.limit = limit
        self.pending_count = pending_count
        words = f"this session has {pending_count} prompts pending, and may have {limit}"
        super().__init__(Problem("prompt_queue_full", words, None, RETRY_AFTER_S))


def invalid(message: str, param: str) -> Refusal:
    """Return the refusal of a field that makes no sense."""
    return Refusal(Problem("invalid_request", message, param))


def session_closing() -> Refusal:
    """Return the refusal of a session that is being ended."""
    return Refusal(Problem("session_closing", "this session is closing"))


def session_not_found() -> Refusal:
    """Return the refusal for an id that is nobody's, or somebody else's: nobody can tell which."""
    return Refusal(
        Problem("session_not_found", "there is no session of this id; POST /session makes one")
    )


def prompt_not_found() -> Refusal:
    """Return the refusal for a prompt that this session does not have, or no longer remembers."""
    return Refusal(Problem("prompt_not_found", "this session has no prompt of this id"))


def shutting_down() -> Refusal:
    """Return the refusal of a gateway that is about to stop."""
    return Refusal(Problem("shutting_down", "the gateway is shutting down"))


def history_too_large(needed: int, room: int, param: str = "prompt") -> Refusal:
    """Return the refusal of what cannot fit beside any answer."""
    what = "the system prompt takes" if param == "system" else "system prompt and prompt take"
    words = f"{what} about {needed} tokens; there is room for {room} beside an answer"
    return Refusal(Problem("history_too_large", words, param))
