"""One line of the access log: ids, sizes and times, never a prompt, a key or a user's name."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable


class AccessRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """What is said about one request."""

    time: str
    route: str
    outcome: str
    id: str = ""
    model: str = ""
    node: str = ""
    status: int = 0
    queued: bool = False
    attempt: int = 0
    waited_ms: int = 0
    first_byte_ms: int = 0
    run_ms: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    answer_bytes: int = 0
    arrived: float = 0.0
    """Unix time."""

    priority: str = ""
    stream: bool = False
    request_bytes: int = 0
    user_hash: str = ""
    weight: float = 1.0
    output_limit: int = 0
    max_wait_ms: int = 0
    job: bool = False
    lines_dropped: int = 0
    """How many lines before this one could not be written."""


def json_lines(lines: Iterable[AccessRecord]) -> bytes:
    """Return the lines for machines: a JSON object each."""
    return _encoder.encode_lines(lines)


def short_lines(lines: Iterable[AccessRecord]) -> bytes:
    """Return the lines for people at a terminal, in local time as the log beside them."""
    return "".join(f"{_short(line)}\n" for line in lines).encode(errors="replace")


def _short(line: AccessRecord) -> str:
    """Return `12:34:56 /v1/chat/completions completed: m on gpu1, waited 1.2 s, took 3.4 s`."""
    what = [f"{line.model} on {line.node}"] if line.node else []
    if line.status >= 400:
        what.append(f"status {line.status}")
    if line.queued:
        what.append(f"waited {line.waited_ms / 1000:.1f} s")
    if line.run_ms:
        what.append(f"took {line.run_ms / 1000:.1f} s")
    if line.lines_dropped:
        what.append(f"{line.lines_dropped} lines before it dropped")
    at = datetime.fromisoformat(line.time).astimezone()
    outcome = "completed" if line.outcome == "served" else line.outcome  # as every surface has it
    text = f"{at:%H:%M:%S} {line.route} {outcome}{': ' if what else ''}{', '.join(what)}"
    return "".join(letter if letter.isprintable() else "?" for letter in text)


_encoder = msgspec.json.Encoder()
