"""Error responses in the caller's API family and language, saying when to retry."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import msgspec

from forebay.core import retry_delay_s
from forebay.gateway.errors.codes import CODES, MEANT_JAPANESE, THERE_ARE_JAPANESE
from forebay.relay.anthropic import ANTHROPIC
from forebay.relay.ollama import OLLAMA
from forebay.relay.openai import OPENAI

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from forebay.gateway.errors.codes import Code
    from forebay.relay.family import Family
    from forebay.relay.problem import Problem
    from forebay.settings import QueueSettings

LISTED = "/v1/models"
"""The route that the clients of both OpenAI and Anthropic use."""


class RenderedError(msgspec.Struct, frozen=True, gc=False):
    """An error response."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class ErrorRenderer:
    """Renders problems as error responses, in the caller's API family and language."""

    def __init__(
        self,
        queue: QueueSettings,
        random: Random,
        explain_model: Callable[[Problem, str, str, str], Problem],
    ) -> None:
        """`explain_model` adds the models there are, given the one asked, a key and the family."""
        self._random = random
        self._explain_model = explain_model
        self.change(queue)

    def change(self, queue: QueueSettings) -> None:
        """Take over the two statuses that are settings."""
        self._chosen = {"queue_full": queue.full_status, "queue_timeout": queue.timeout_status}

    def status(self, code: str) -> int:
        """Return the HTTP status of a code."""
        known = CODES.get(code)
        return self._chosen.get(code) or (known.status if known else 500)

    def render(self, problem: Problem, family: Family, language: str = "en") -> RenderedError:
        code = CODES.get(problem.code) or CODES["internal_error"]
        headers = [(b"content-type", b"application/json")]
        delay_s = self._delay_s(problem, code)
        if delay_s:
            headers.append((b"retry-after", b"%d" % ceil(delay_s)))
            headers.append((b"retry-after-ms", b"%d" % ceil(delay_s * 1000)))
        problem = _detailed(problem, code, language, delay_s)
        if code.retry != "unsaid":
            headers.append((b"x-should-retry", b"true" if code.retry == "later" else b"false"))
        if problem.code == "unauthorized":
            headers.append((b"www-authenticate", b"Bearer"))
        status = self.status(problem.code)
        body = family.error(problem, self.message(problem, language), status)
        return RenderedError(status, headers, msgspec.json.encode(body))

    def render_in_stream(self, problem: Problem, family: Family, language: str) -> bytes:
        """Return an error as the last event of a stream that has begun."""
        code = CODES.get(problem.code) or CODES["internal_error"]
        delay_s = self._delay_s(problem, code)
        problem = _detailed(problem, code, language, delay_s)
        words = self.message(problem, language)
        return family.stream_error(problem, words, self.status(problem.code))

    def message(self, problem: Problem, language: str) -> str:
        """Return the message: the specific one in English, the code's own in Japanese."""
        code = CODES.get(problem.code)
        if language != "ja" or code is None:
            return problem.message
        words = code.japanese
        if (asked := problem.details.get("model")) is not None:
            words = f"{words}: {asked}"
        for member, form in (("suggestions", MEANT_JAPANESE), ("available", THERE_ARE_JAPANESE)):
            if isinstance(names := problem.details.get(member), list):
                words = form.format(message=words, names=", ".join(name[:80] for name in names))
        return words

    def about_the_model(self, problem: Problem, asked: str, owner: str, family: Family) -> Problem:
        """Add the available models to the problem of a model that does not exist."""
        return self._explain_model(problem, asked, owner, family.name)

    def _delay_s(self, problem: Problem, code: Code) -> float:
        measured_s = problem.retry_after_s
        if not code.retry_after:
            return 0.0
        if code.retry_after_is_exact and measured_s is not None:
            return max(1.0, measured_s)
        return retry_delay_s(measured_s, 2.0 * self._random.random() - 1.0)


def family_of(path: str, is_anthropic: bool = False) -> Family:
    """Return the API family whose form the errors of a route have; `/v1/models` has two."""
    if is_anthropic and path.startswith(LISTED):
        return ANTHROPIC
    if path.startswith("/api/"):
        return OLLAMA
    return ANTHROPIC if path.startswith(("/v1/messages", "/v1/v1/messages")) else OPENAI


def hint(code: Code, language: str) -> str:
    """Return what to do about an error, in a language."""
    return code.hint_japanese if language == "ja" else code.remedy


def _detailed(problem: Problem, code: Code, language: str, delay_s: float) -> Problem:
    """Add what the body of every error says: when to retry, and what can be done."""
    details: dict[str, object] = {"retry_after": ceil(delay_s)} if delay_s else {}
    if code.hint_japanese:
        details["hint"] = hint(code, language)
    if not details:
        return problem
    return msgspec.structs.replace(problem, details=details | problem.details)


def preferred_language(accept: bytes | None) -> str:
    """Return `ja` when an Accept-Language header prefers it, else `en`.

    >>> preferred_language(b"ja,en;q=0.5"), preferred_language(b"en-GB, ja;q=0.9")
    ('ja', 'en')
    """
    if not accept:
        return "en"
    best, best_weight = "en", 0.0
    for part in accept[:1024].decode("latin-1").split(","):
        tag, _, weight_text = part.strip().partition(";")
        language = tag.split("-")[0].strip().lower()
        if language in ("ja", "en", "*"):
            weight = _weight(weight_text)
            if weight > best_weight:
                best, best_weight = ("ja" if language == "ja" else "en"), weight
    return best


def _weight(text: str) -> float:
    name, _, value = text.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
