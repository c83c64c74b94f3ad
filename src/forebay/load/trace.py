"""Trace files: CSV with a time and the tokens of each request, as published traces have them."""

from __future__ import annotations

import csv
import math
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from forebay.load.quantities import BadPlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

TOKENS_MAX = 1_000_000
LINE_CHARACTERS_MAX = 65_536
_TIMES = ("timestamp", "at_s", "time", "arrived_at", "arrival_time")
_PROMPTS = ("contexttokens", "prompt_tokens", "input_tokens", "request tokens", "input_length")
_ANSWERS = ("generatedtokens", "output_tokens", "max_tokens", "response tokens", "output_length")


class TraceRow(NamedTuple):
    """One request of a trace."""

    at_s: float
    """Seconds, from any origin."""
    prompt_tokens: int
    tokens_max: int


class _Columns(NamedTuple):
    time: int
    prompt: int
    answer: int
    names: list[str]


def read_trace(path: Path, option: str = "--trace") -> Iterator[TraceRow]:
    """Yield the rows of the file of an option; raises BadPlan, naming file, line and column."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield from parse_trace(_short_lines(file, str(path)), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadPlan(f"{option}: {path} cannot be read: {reason}.") from None


def parse_trace(lines: Iterable[str], name: str) -> Iterator[TraceRow]:
    """Yield the rows of CSV text; raises BadPlan, naming file, line and column."""
    reader = csv.reader(lines)
    columns: _Columns | None = None
    before_s = -math.inf
    try:
        for cells in reader:
            if not cells:
                continue
            if columns is None:
                columns = _columns(cells, name)
                continue
            row = _row(cells, columns, f"{name}, line {reader.line_num}")
            if row.at_s < before_s:
                raise BadPlan(
                    f"{name}, line {reader.line_num}, column {columns.names[columns.time]}: "
                    "earlier than the line before. Sort the file by time."
                )
            before_s = row.at_s
            yield row
    except csv.Error as error:
        raise BadPlan(f"{name}, line {reader.line_num}: {error}.") from None
    if columns is None:
        raise BadPlan(f"{name} is empty. Its first line must name the columns.")


def _short_lines(lines: Iterable[str], name: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_CHARACTERS_MAX:
            raise BadPlan(f"{name}, line {number}: longer than {LINE_CHARACTERS_MAX} characters.")
        yield line


def _columns(cells: list[str], name: str) -> _Columns:
    lowered = [cell.strip().lower() for cell in cells]

    def place(known: tuple[str, ...], what: str) -> int:
        for candidate in known:
            if candidate in lowered:
                return lowered.index(candidate)
        raise BadPlan(
            f"{name}, line 1: no column for {what}. The first line must name one of: "
            f"{', '.join(known)} (TIMESTAMP,ContextTokens,GeneratedTokens is the usual form)."
        )

    return _Columns(
        place(_TIMES, "the time"),
        place(_PROMPTS, "the tokens of the prompt"),
        place(_ANSWERS, "the tokens of the answer"),
        cells,
    )


def _row(cells: list[str], columns: _Columns, where: str) -> TraceRow:
    if len(cells) != len(columns.names):
        raise BadPlan(f"{where}: {len(cells)} columns, but the first line has {len(columns.names)}")
    return TraceRow(
        _time_s(cells[columns.time], f"{where}, column {columns.names[columns.time]}"),
        _tokens(cells[columns.prompt], f"{where}, column {columns.names[columns.prompt]}"),
        _tokens(cells[columns.answer], f"{where}, column {columns.names[columns.answer]}"),
    )


def _time_s(text: str, where: str) -> float:
    """Return seconds: of a number as it is, of a date since 1970; without a zone it is UTC."""
    try:
        value = float(text)
    except ValueError:
        value = _date_s(text, where)
    if not math.isfinite(value):
        raise BadPlan(f"{where}: {text!r} is not a time.")
    return value


def _date_s(text: str, where: str) -> float:
    day, dot, rest = text.strip().partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(digits) :] if dot else ""
    try:
        parsed = datetime.fromisoformat(day + zone)
    except ValueError:
        raise BadPlan(
            f"{where}: {text!r} is not a time. Write seconds, or 2023-11-16 18:17:03.97."
        ) from None
    aware = parsed if parsed.tzinfo else datetime.fromisoformat(f"{day}+00:00")
    return aware.timestamp() + (float(f"0.{digits}") if digits else 0.0)


def _tokens(text: str, where: str) -> int:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit()) or len(stripped) > 9:
        raise BadPlan(f"{where}: {text!r} is not a number of tokens.")
    if int(stripped) > TOKENS_MAX:
        raise BadPlan(f"{where}: {text} tokens are more than {TOKENS_MAX:,}.")
    return int(stripped)
