"""One line of the access log: ids, sizes and times, never a prompt, a key or a user's name."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from forebay.core import Arrived

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.gateway.hot.user_hash import UserHashes

MODELS_MAX = 10_000
WAIT_S_MAX = 1e9
"""More is no limit of a caller's own."""


class AccessRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """What is said about one request; what its arrival says is filled in by the writing thread."""

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
    """On the gateway's own clock until the line is written, then Unix time."""

    priority: str = ""
    stream: bool = False
    request_bytes: int = 0
    user_hash: str = ""
    weight: float = 1.0
    output_limit: int = 0
    max_wait_ms: int = 0
    job: bool = False


class LogBatch(msgspec.Struct, gc=False):
    """Records, and the arrival of each; None where none was made of it."""

    records: list[AccessRecord]
    arrivals: list[Arrived | None]
    time: str = ""
    clock_offset_s: float = 0.0
    """From the gateway's own clock to Unix time."""


class RecordFiller:
    """Adds to records what the arrivals say; off the event loop, so that requests do not wait."""

    def __init__(self, hashes: UserHashes) -> None:
        self._hashes = hashes
        self._models: set[str] = set()  # that have run here: anything else is a caller's invention

    def fill(self, record: AccessRecord, arrival: Arrived, clock_offset_s: float) -> None:
        record.arrived = round(record.arrived + clock_offset_s, 3)
        record.priority = arrival.priority
        record.stream = arrival.stream
        record.request_bytes = arrival.size_bytes
        record.user_hash = self._hashes.of(arrival.user)
        if arrival.weight != 1.0:
            record.weight = arrival.weight
        record.output_limit = arrival.output_limit
        if arrival.max_wait_s is not None and 0 <= arrival.max_wait_s < WAIT_S_MAX:
            record.max_wait_ms = max(1, int(arrival.max_wait_s * 1000))
        record.job = arrival.job
        if not record.prompt_tokens:
            record.prompt_tokens = arrival.prompt_tokens
        if not record.node:
            record.model = arrival.model if arrival.model in self._models else ""
        elif record.model not in self._models and len(self._models) < MODELS_MAX:
            self._models.add(record.model)


def json_lines(lines: Iterable[AccessRecord]) -> bytes:
    """Return the lines for machines: a JSON object each."""
    return _encoder.encode_lines(lines)


def short_lines(lines: Iterable[AccessRecord]) -> bytes:
    """Return the lines for people at a terminal, in local time as the log beside them."""
    return "".join(f"{_short(line)}\n" for line in lines).encode(errors="replace")


def _short(line: AccessRecord) -> str:
    """Return `12:34:56 /v1/chat/completions served: m on gpu1, waited 1.2 s, took 3.4 s`."""
    what = [f"{line.model} on {line.node}"] if line.node else []
    if line.status >= 400:
        what.append(f"status {line.status}")
    if line.queued:
        what.append(f"waited {line.waited_ms / 1000:.1f} s")
    if line.run_ms:
        what.append(f"took {line.run_ms / 1000:.1f} s")
    at = datetime.fromisoformat(line.time).astimezone()
    text = f"{at:%H:%M:%S} {line.route} {line.outcome}{': ' if what else ''}{', '.join(what)}"
    return "".join(letter if letter.isprintable() else "?" for letter in text)


_encoder = msgspec.json.Encoder()
