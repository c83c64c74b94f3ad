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
        self._models: set[str] = set()  # that have run here

    def fill(self, batch: LogBatch) -> None:
        """Complete the records of a batch."""
        hash_of, models, offset_s = self._hashes.of, self._models, batch.clock_offset_s
        for record, arrival in zip(batch.records, batch.arrivals, strict=True):
            record.time = batch.time
            if arrival is None:
                continue
            record.arrived = int((record.arrived + offset_s) * 1000) / 1000  # `round` takes 0.4 µs
            record.priority = arrival.priority
            record.request_bytes = arrival.size_bytes
            record.user_hash = hash_of(arrival.user)
            if arrival.stream:
                record.stream = True
            if arrival.output_limit:
                record.output_limit = arrival.output_limit
            if not record.prompt_tokens:
                record.prompt_tokens = arrival.prompt_tokens
            if record.model not in models or not record.node:
                self._settle_model(record)
            if arrival.weight != 1.0 or arrival.max_wait_s is not None or arrival.job:
                _add_rare(record, arrival)

    def _settle_model(self, record: AccessRecord) -> None:
        """Keep the name of a model that has run here; of others a caller says what they like."""
        if record.node:
            if len(self._models) < MODELS_MAX:
                self._models.add(record.model)
        elif record.model not in self._models:
            record.model = ""


def _add_rare(record: AccessRecord, arrival: Arrived) -> None:
    if arrival.weight != 1.0:  # by value: the encoder knows defaults by identity
        record.weight = arrival.weight
    if arrival.max_wait_s is not None and 0 <= arrival.max_wait_s < WAIT_S_MAX:
        record.max_wait_ms = max(1, int(arrival.max_wait_s * 1000))
    record.job = arrival.job


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
