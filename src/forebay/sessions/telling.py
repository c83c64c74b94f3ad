"""How a session's prompts are told of: the events of their waiting, and the one of their end."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from forebay.sessions.prompt import Result, TurnError

if TYPE_CHECKING:
    from forebay.relay.problem import Problem
    from forebay.sessions.events import EventLog
    from forebay.sessions.prompt import Prompt


def tell_added(
    log: EventLog, prompt: Prompt, waits_for: str, place: int | None, estimate_s: float | None
) -> None:
    """Tell of a prompt that has to wait, once."""
    if not prompt.added:
        prompt.added = True
        log.publish(
            "pending_prompt_added",
            prompt.id,
            position=place,
            estimatedWaitSeconds=None if estimate_s is None else round(estimate_s, 3),
            waitsFor=waits_for,
            text=prompt.text(),
            queuedAt=prompt.accepted_at,
            originator=prompt.sender.user,
        )


def tell_end(log: EventLog, prompt: Prompt) -> int:
    """Tell how a prompt ended; return the number of the one event that does."""
    kind, fields = terminal_event(prompt)
    event_id = log.publish(kind, prompt.id, **fields)
    if prompt.added:
        result = prompt.result
        removed = result is not None and result.error is not None and result.error.code == "removed"
        state = "removed" if removed else "completed"
        log.publish("pending_prompt_completed", prompt.id, state=state)
    return event_id


def terminal_event(prompt: Prompt) -> tuple[str, dict[str, Any]]:
    """Return the one event that tells how a prompt ended."""
    result = prompt.result
    assert result is not None
    if result.error is not None:
        return "turn_error", {"status": prompt.status, "error": result.error}
    return "turn_complete", {
        "status": prompt.status,
        "text": result.text,
        "finishReason": result.finish_reason,
        "usage": result.usage,
        "model": result.model,
        "node": result.node,
        "waitedMs": prompt.waited_ms,
    }


def without_answer(code: str, words: str) -> Result:
    """Return the outcome of a turn that we end ourselves."""
    return Result(error=TurnError(code, words))


def failed_by(problem: Problem) -> Result:
    """Return the outcome of a turn that something else has ended."""
    wait_s = problem.retry_after_s
    retry_ms = None if wait_s is None else ceil(wait_s * 1000)
    return Result(error=TurnError(problem.code, problem.message, retry_ms))
