"""The upper part of the picture: who it is, the big numbers, the queue and its last minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.terminal.amounts import brief, counted
from forebay.terminal.digits import DIGITS_ROWS, big
from forebay.terminal.lines import Column, Line, Piece, beside, cells_of, fitted, heading, spread
from forebay.terminal.timeline import step

if TYPE_CHECKING:
    from forebay.terminal.pen import Pen
    from forebay.terminal.values import Queue, Snapshot
    from forebay.terminal.view import View

PRIORITIES_SHOWN = 4
PRIORITY_CELLS = 7
COUNT_CELLS = 5


# -- who it is


def header(pen: Pen, view: View, cells: int) -> Line:
    """Return the first line: the gateway at the left, the connection and the clock at the right."""
    version = f" {view.hello.gateway}" if view.hello.gateway else ""
    left = [Piece(f" Forebay{pen.cut(version, 16)}", "strong"), Piece("  "), Piece(view.url)]
    right = _connection(pen, view)
    clock = [] if view.is_still else [Piece(f"  {view.now:%H:%M:%S}", "dim")]
    return spread(pen, left, right + clock, cells)


def _connection(pen: Pen, view: View) -> Line:
    glyphs, snapshot = pen.glyphs, view.snapshot
    if not view.link.is_live:
        if view.link.since_s is None:
            return [Piece(glyphs.loading, "busy"), Piece(" connecting")]
        away = brief(view.now_s - view.link.since_s)
        return [Piece(glyphs.offline, "bad"), Piece(f" reconnecting, away for {away}", "strong")]
    if view.is_paused:
        return [Piece(glyphs.pause, "warn"), Piece(" paused, p goes on", "strong")]
    if snapshot is not None and snapshot.draining:
        return [Piece(glyphs.draining, "warn"), Piece(" stopping", "strong")]
    if snapshot is not None and not snapshot.ready:
        return [Piece(glyphs.offline, "bad"), Piece(" not ready", "strong")]
    up = f", up {brief(snapshot.uptime_seconds)}" if snapshot is not None else ""
    return [Piece(glyphs.online, "good"), Piece(f" {'ready' if view.is_still else 'live'}{up}")]


# -- the big numbers


def figures(pen: Pen, snapshot: Snapshot, cells: int, rows: int = 1) -> list[Line]:
    """Return the numbers that matter most, and below each what it is; big ones have three rows."""
    shown = _figures_of(snapshot)
    count = min(len(shown), max(2, _figures_in(cells)))
    wide = cells // count
    numbers: list[Line] = [[] for _ in range(rows)]
    labels: Line = []
    for number, rest, names, style in shown[:count]:
        drawn = big(number) if rows == DIGITS_ROWS else [number]
        for row, text in enumerate(drawn):
            beside = Piece(rest if row == rows - 1 else "", "dim")
            numbers[row] += fitted(pen, [Piece(f" {text}", style), beside], wide)
        labels += fitted(pen, [Piece(f" {names[wide < 15]}", "dim")], wide)
    return [fitted(pen, line, cells) for line in [*numbers, labels]]


def _figures_in(cells: int) -> int:
    """Return how many fit: five from 60 cells on, and more only where all have room."""
    return max(cells // 16, min(5, cells // 12))


def _figures_of(snapshot: Snapshot) -> list[tuple[str, str, tuple[str, str], str]]:
    """Return each number, what goes beside it, its name and a short name, and its style."""
    queue = snapshot.queue
    slots = sum(node.slots for node in snapshot.nodes if node.state in ("online", "loading"))
    full = queue.enabled and 0 < queue.max_size <= queue.waiting
    room = f" of {counted(queue.max_size)}" if queue.enabled else " queue off"
    rejected = "bad" if queue.rejected_per_minute else "big"
    return [
        (counted(queue.waiting), room, ("waiting", "waiting"), "bad" if full else "big"),
        (counted(queue.processing), f" of {counted(slots)}", ("processing", "processing"), "big"),
        (brief(queue.average_wait_seconds), "", ("average wait", "avg wait"), "big"),
        (counted(queue.served_per_minute), "", ("served / min", "served/min"), "big"),
        (counted(queue.rejected_per_minute), "", ("rejected / min", "reject/min"), rejected),
        (brief(queue.average_service_seconds), "", ("average run", "avg run"), "big"),
        (counted(queue.timeouts_total), "", ("timed out", "timed out"), "big"),
        (counted(queue.served_total), "", ("served in all", "served"), "big"),
        (counted(queue.model_swaps_total), "", ("model swaps", "swaps"), "big"),
    ]


# -- the queue


def queue_panel(pen: Pen, view: View, cells: int, rows: int) -> list[Line]:
    """Return the queue by priority as bars, and beside it the last minutes."""
    assert view.snapshot is not None
    if cells < 50:
        return _bars(pen, view, view.snapshot.queue, cells, rows)
    left = max(24, min(50, cells * 3 // 8))
    right = cells - left - 2
    blocks = [
        (_bars(pen, view, view.snapshot.queue, left, rows), left),
        (_charts(pen, view, right, rows), right),
    ]
    return beside(pen, blocks, 2)


def _bars(pen: Pen, view: View, queue: Queue, cells: int, rows: int) -> list[Line]:
    names = list(dict.fromkeys([*view.hello.priorities, *queue.by_priority]))[:PRIORITIES_SHOWN]
    counts = [queue.by_priority.get(name, 0) for name in names]
    top = max(view.timeline.peak_by_priority, *counts, 4)  # one of one is not a long queue
    room = cells - PRIORITY_CELLS - COUNT_CELLS - 2
    made = [heading(pen, [Column("Queue by priority", cells)], cells)]
    for name, count in zip(names, counts, strict=True):
        number = Piece(
            pen.fit(counted(count), COUNT_CELLS, right=True), "strong" if count else "dim"
        )
        bar = Piece(pen.bar(count, top, room), "busy")
        made.append([Piece(pen.fit(name, PRIORITY_CELLS)), Piece(" "), bar, Piece(" "), number])
    totals = _totals(pen, queue, cells)
    return made + totals if len(made) + len(totals) <= rows + 1 else made[: rows + 1]


def _totals(pen: Pen, queue: Queue, cells: int) -> list[Line]:
    """Return what has been counted since the gateway began; shown where there is room."""
    totals = (
        ("served", queue.served_total),
        ("rejected", queue.rejected_total),
        ("timed out", queue.timeouts_total),
        ("cancelled", queue.cancelled_total),
        ("retried", queue.retries_total),
        ("model swaps", queue.model_swaps_total),
    )
    made: list[Line] = [[], fitted(pen, [Piece("Since the gateway began:", "dim")], cells)]
    for pair in zip(totals[::2], totals[1::2], strict=True):
        line: Line = []
        for name, count in pair:
            line += [Piece(pen.fit(counted(count), COUNT_CELLS, right=True)), Piece(" ")]
            line.append(Piece(pen.fit(name, 13), "dim"))
        made.append(line)
    return made


def _charts(pen: Pen, view: View, cells: int, rows: int) -> list[Line]:
    """Return depth, and below it, in a third of the rows, what was served."""
    labels = 8
    columns = max(1, cells - 2 * labels - 2)
    minutes = max(1, round(columns * step(columns) / 60))
    title = f"Last {minutes} min, {step(columns)} s a column"
    made = [heading(pen, [Column(title, cells)], cells)]
    depth, served = view.timeline.depth(columns), view.timeline.served(columns)
    low = max(1, rows // 3)
    made += _chart(pen, ("waiting", "busy"), depth, columns, rows - low)
    made += _chart(pen, ("served", "good"), served, columns, low)
    return made


def _chart(
    pen: Pen, named: tuple[str, str], values: list[float], columns: int, rows: int
) -> list[Line]:
    name, style = named
    top = max([*values, 0.0])
    blank = [0.0] * (columns - len(values))
    drawn = pen.chart(blank + values, top, rows)
    made: list[Line] = []
    for row, text in enumerate(drawn):
        label = name if row == rows - 1 else ""
        mark = f"max {counted(top)}" if row == 0 else ""
        line = [Piece(pen.fit(label, 8)), Piece(" "), Piece(text, style), Piece(" ")]
        made.append([*line, Piece(pen.fit(mark, 8), "dim")])
    return made


def caption(pen: Pen, snapshot: Snapshot, cells: int) -> list[Line]:
    """Return what a demo says is going on, if one does."""
    if snapshot.caption is None or not snapshot.caption.en:
        return []
    line = [Piece(f" {pen.glyphs.arrow} ", "busy"), Piece(snapshot.caption.en, "strong")]
    return [fitted(pen, line, max(cells_of([]), cells))]
