"""The JSON document of `forebay sim`: what was replayed, what was assumed, and the results."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from forebay.planning.fitting import ServiceFit
from forebay.planning.fleet import PlannedNode
from forebay.planning.summary import ReplaySeries, ReplaySummary
from forebay.planning.traffic import Source

KIND = "forebay.sim"
VERSION = 1


class SimSource(Struct, frozen=True):
    """What was replayed."""

    file: str
    kind: Source
    requests: int
    skipped: int
    """Lines that are no request for the queue."""
    span_s: float
    fits: dict[str, ServiceFit]
    """By model; `points` is 0 where the time is assumed."""


class SimVariant(Struct, frozen=True):
    """One replay."""

    name: str
    nodes: list[PlannedNode]
    settings: list[str]
    """As `--set` has them, beside the settings file and the environment."""
    scale: float
    speed: float
    load_s: float
    summary: ReplaySummary
    series: ReplaySeries


class SimDocument(Struct, frozen=True, kw_only=True):
    """Some replays of the same traffic, side by side."""

    kind: str = KIND
    version: int = VERSION
    forebay: str
    source: SimSource
    recorded: ReplaySummary | None
    """What the log says became of its requests; None of a trace."""
    variants: list[SimVariant]


def encode(made: SimDocument) -> str:
    """Return the document as JSON, laid out for people and for diffs."""
    return msgspec.json.format(msgspec.json.encode(made), indent=1).decode()
