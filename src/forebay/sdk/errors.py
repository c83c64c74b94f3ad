"""What can go wrong, split by what the caller can do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class SdkError(Exception):
    """Everything that this package raises on purpose."""


class ClientClosed(SdkError):
    """The client was closed, before or while this was asked."""


class GatewayAway(SdkError):
    """Nothing answers, or the answer broke off; the text says what happened."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether the gateway may have got the request, and be at work on it."""


class BadAnswer(SdkError):
    """The server is not a Forebay gateway, or its answer exceeds the limits."""


class WaitTooLong(SdkError, TimeoutError):
    """The caller's own limit for a wait has passed; the job or batch continues."""


class GatewayError(SdkError):
    """The gateway said no. `code` is stable (docs/reference/errors.md), the text is for people."""

    def __init__(self, status: int, error: Mapping[str, object]) -> None:
        self.status = status
        """The HTTP status; 200 where a stream had begun before it failed."""
        self.code = str(error.get("code") or "unknown")
        self.message = str(error.get("message") or f"status {status}")
        param = error.get("param")
        self.param = param if isinstance(param, str) else None
        """The field or header at fault, if one is."""
        hint = error.get("hint")
        self.hint = hint if isinstance(hint, str) else ""
        """What the gateway says can be done about it: a setting to change, a command to run."""
        pause = error.get("retry_after")
        self.retry_after_s = float(pause) if isinstance(pause, int | float) else None
        """How long to wait before the next attempt, where the gateway said so."""
        self.request_id: str | None = None
        """What the gateway called the request."""
        self.may_retry = False
        """Whether the gateway says that the same may be taken later."""
        super().__init__(f"{self.message} ({self.code})")


class Refused(GatewayError):
    """What was asked for is wrong, or may not be done: asking again will not help."""


class NotAllowed(Refused):
    """No key, a wrong key, or one that may not: 401 and 403."""


class NotFound(Refused):
    """There is no such model, session, job, file or route: 404."""


class Busy(GatewayError):
    """Too much at once: 429 and 503. Later may do; see `retry_after_s`."""


class NodeFailed(GatewayError):
    """The gateway, or a node behind it, failed or was too slow: the other 5xx."""


class PromptQueueFullError(Busy):
    """The server's own cap: the session has as many pending prompts as it may; none was taken."""

    def __init__(self, status: int, body: Mapping[str, object]) -> None:
        super().__init__(status, {"code": body.get("code"), "message": body.get("error")})
        self.session_id = str(body.get("sessionId"))
        self.limit = _whole(body.get("limit"))
        self.pending_count = _whole(body.get("pendingCount"))


class PendingPromptLimitError(SdkError):
    """The local cap: nothing was sent, for this many prompts of the session are under way."""

    def __init__(self, session_id: str, limit: int, pending_count: int) -> None:
        super().__init__(
            f"session {session_id} has {pending_count} prompts under way here, and the limit is "
            f"{limit}; nothing was sent (max_pending)"
        )
        self.session_id = session_id
        self.limit = limit
        self.pending_count = pending_count


class TurnFailed(SdkError):
    """An accepted prompt ended in `turn_error`; `status` is `failed` or `cancelled`."""

    def __init__(
        self, prompt_id: str, status: str, error: Mapping[str, object] | None = None
    ) -> None:
        error = error or {}
        self.prompt_id = prompt_id
        self.status = status
        self.code = str(error.get("code") or "unknown")
        self.message = str(error.get("message") or self.code)
        pause = error.get("retryAfterMs")
        self.retry_after_s = pause / 1000 if isinstance(pause, int | float) else None
        super().__init__(f"{self.message} ({self.code})")


class SessionEnded(SdkError):
    """The session was closed before this could end."""


class BatchFailed(SdkError):
    """The input of a batch was refused, and nothing has run; `faults` are its first hundred."""

    def __init__(self, batch_id: str, faults: tuple[Mapping[str, object], ...]) -> None:
        first = faults[0].get("message") if faults else "no reason was given"
        super().__init__(f"batch {batch_id} was refused: {first}")
        self.batch_id = batch_id
        self.faults = faults


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def error_of(status: int, body: object) -> GatewayError:
    """Return the error that an answer means; a body that is not the gateway's own counts too."""
    if not isinstance(body, dict):
        body = {}
    if body.get("code") == "prompt_queue_full":
        return PromptQueueFullError(status, body)
    found = body.get("error")
    if isinstance(found, str):  # Ollama's dialect, and some nodes
        found = {"message": found, "code": body.get("code")}
    error = found if isinstance(found, dict) else {}
    return _kind(status)(status, error)


def is_about_the_key(error: Exception) -> bool:
    """Say whether another key may help."""
    return isinstance(error, NotAllowed) and error.code != "forbidden_host"


def _kind(status: int) -> type[GatewayError]:
    if status in (401, 403):
        return NotAllowed
    if status == 404:
        return NotFound
    if status in (429, 503):
        return Busy
    if status >= 500:
        return NodeFailed
    return Refused if status >= 400 else GatewayError
