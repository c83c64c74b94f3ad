"""The JSON document of a run: what was asked, what was found, and the samples to check it by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from forebay.load.plan import Plan
from forebay.load.quantities import BadPlan
from forebay.load.samples import COLUMNS, Sample
from forebay.load.series import Series, series
from forebay.load.sound import fault_of
from forebay.load.summary import Summary, measured_samples, summarise

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.load.run import Measured

VERSION = 1
KIND = "forebay.bench"
SAMPLES_MAX = 20_000
"""In the document, about 4 MB; the figures are always of all."""
FILE_BYTES_MAX = 256 * 1024 * 1024


class Rows(Struct, frozen=True):
    """Samples as rows: every `step`-th of those that were measured."""

    columns: tuple[str, ...]
    step: int
    rows: list[Sample]


class Document(Struct, frozen=True, kw_only=True):
    """One run, as written with `--json` and `--save`."""

    kind: str = KIND
    version: int = VERSION
    forebay: str
    """The version that measured."""
    started: str
    """UTC, as in ISO 8601."""
    settings: Plan
    summary: Summary
    series: Series
    messages: dict[str, str]
    """What the server said, by code of error: the first of each."""
    samples: Rows


class _Header(Struct):
    kind: str = ""
    version: int = 0


def document(measured: Measured, plan: Plan, started: str, forebay: str) -> Document:
    """Return the document of a run."""
    samples = measured_samples(measured, plan)
    step = max(1, -(-len(samples) // SAMPLES_MAX))
    ended_s = max((sample.ended_s or 0.0 for sample in measured.samples), default=0.0)
    return Document(
        forebay=forebay,
        started=started,
        settings=plan,
        summary=summarise(measured, plan),
        series=series(measured.samples, max(measured.elapsed_s, ended_s)),
        messages=measured.messages,
        samples=Rows(COLUMNS, step, samples[::step]),
    )


def encode(made: Document) -> str:
    """Return the document as JSON, laid out for people and for diffs."""
    return msgspec.json.format(msgspec.json.encode(made), indent=1).decode()


def load(path: Path) -> Document:
    """Read a document; raises BadPlan, saying what is wrong with it."""
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= FILE_BYTES_MAX else None
    except OSError as error:
        raise BadPlan(f"{path} cannot be read: {error.strerror}.") from None
    if content is None:
        raise BadPlan(f"{path} is larger than {FILE_BYTES_MAX:,} bytes.")
    try:
        header = msgspec.json.decode(content, type=_Header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        header = _Header()
    if header.kind != KIND:
        raise BadPlan(f"{path} is not a run of forebay bench. Make one with --save FILE.")
    if header.version != VERSION:
        raise BadPlan(
            f"{path} is of version {header.version}, this program reads {VERSION}. "
            "Use the forebay that wrote it."
        )
    try:
        made = msgspec.json.decode(content, type=Document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadPlan(f"{path} is broken: {error}.") from None
    fault = fault_of(made)
    if fault is not None:
        raise BadPlan(f"{path} is broken: {fault}.")
    return made
