"""The reference page of every error, made from `codes.py`."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

from forebay.gateway.errors.codes import CODES

if TYPE_CHECKING:
    from forebay.gateway.errors.codes import Code

PAGE: Final = Path("docs/reference/errors.md")
PHRASES: Final = {
    413: "Content Too Large",  # RFC 9110; Python says so from 3.13 on
    422: "Unprocessable Content",
    499: "Client Closed Request",
}

OPENING: Final = """\
# Errors

<!-- Made from src/forebay/gateway/errors/codes.py by `make reference`; change the words there, not
this page. -->

Every error of the gateway has a stable `code`; the message is for people and may change. It is told
in the dialect of the route:

| Routes | Body |
| --- | --- |
| Anthropic's: `/v1/messages` | `{"type": "error", "error": {"type", "message", "code", ...}}` |
| Ollama's: under `/api/` | `{"error": "the message", "code", ...}` |
| all others | `{"error": {"message", "type", "code", "param", ...}}`, `type` being the code too |

Beside these, where they apply: `hint` (what to do about it; it names the setting), `param` (the
field or header at fault), `retry_after` (seconds), `waited_seconds`, `estimated_wait_seconds`,
`model` (as it was asked for) with `suggestions` (those that may have been meant) or `available`
(some of those there are), and of a failed node `cause`, `node` and `attempts`.
Once a stream has begun, the same body comes as its last event (`data:`, `event: error`, or a line
of JSON); no `[DONE]` follows, and what came before it is void.

Answers of a node that the gateway does not take for a failure (most 4xx, 501) are passed through as
they are, with the header `X-Forebay-Node`; they are not on this page.

**Try again** says what the header `x-should-retry` tells the stock SDKs: *later* is `true`, with
`Retry-After` and `retry-after-ms` from the measured wait; *no* is `false`; *up to you* means that
the header is not sent. Messages are in Japanese where `Accept-Language` prefers `ja`.

| Code | Status | Try again |
| --- | --- | --- |
"""

_RETRY: Final = {"later": "later", "never": "no", "unsaid": "up to you"}
_CHOSEN: Final = {"queue_full": "queue.full_status", "queue_timeout": "queue.timeout_status"}


def page() -> str:
    """Return what the generated page should hold."""
    ordered = sorted(CODES.items(), key=lambda pair: (pair[1].status, pair[0]))
    rows = [
        f"| [`{name}`](#{name}) | {code.status} | {_RETRY[code.retry]} |" for name, code in ordered
    ]
    sections = [_section(name, code) for name, code in ordered]
    return OPENING + "\n".join(rows) + "\n\n" + "\n".join(sections)


def _section(name: str, code: Code) -> str:
    status = f"{code.status} {_phrase(code.status)}"
    if name in _CHOSEN:
        status += f", or what `{_CHOSEN[name]}` says"
    return (
        f"## `{name}`\n\n{status}. {code.meaning}\n\n"
        f"What to do: {code.remedy} Try again: {_RETRY[code.retry]}.\n\n"
        f"In Japanese: {code.japanese}"
        + (f"; `hint`: {code.hint_japanese}\n" if code.hint_japanese else "\n")
    )


def _phrase(status: int) -> str:
    return PHRASES.get(status) or HTTPStatus(status).phrase
