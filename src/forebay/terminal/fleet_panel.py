"""The gateways that share one queue: in one line, or where there is room as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.terminal.amounts import brief, counted
from forebay.terminal.lines import Column, Line, Piece, fitted, heading, table_row

if TYPE_CHECKING:
    from forebay.terminal.pen import Pen
    from forebay.terminal.values import Fleet, Replica, Snapshot

MODES = {
    "coordinated": ("one queue for all", "good"),
    "seeking": ("looking for a leader", "warn"),
    "alone": ("alone, the store is out of reach", "bad"),
    "cut_off": ("cut off, nothing new starts here", "bad"),
}
STYLES = {"leading": "good", "following": "good", "lost": "bad"}
UNSEEING = ("alone", "cut_off")
"""Modes in which a gateway knows no other's state."""
OLD_S = 1.0
"""Younger figures are as good as new."""


def fleet_rows_wanted(snapshot: Snapshot) -> int:
    """Return how many rows the table would take, its heading included; none without a fleet."""
    return 0 if snapshot.fleet is None else 1 + len(snapshot.fleet.replicas)


def fleet_lines(pen: Pen, snapshot: Snapshot, cells: int, rows: int) -> list[Line]:
    """Return the fleet in so many rows: the table if it fits whole, else one line."""
    fleet = snapshot.fleet
    if fleet is None or rows <= 0:
        return []
    fits = rows >= fleet_rows_wanted(snapshot)
    return _table(pen, fleet, cells) if fits else [_line(pen, fleet, cells)]


def _line(pen: Pen, fleet: Fleet, cells: int) -> Line:
    made = [Piece(f"{_title(fleet)} ", "title"), *_mode(pen, fleet), Piece(": ", "dim")]
    for place, replica in enumerate(fleet.replicas):
        made += [Piece("  " if place else ""), *_state(pen, fleet, replica, word=False)]
        made.append(Piece(pen.clean(replica.name), "strong" if replica.name == fleet.me else ""))
        made += _flaws(pen, fleet, replica)
    return fitted(pen, made, cells)


def _table(pen: Pen, fleet: Fleet, cells: int) -> list[Line]:
    wide = cells >= 60
    columns = [Column(_title(fleet), 18), Column("State", 12), Column("Wait", 5, True)]
    columns += [Column("Run", 5, True), Column("Lent", 5, True)]
    columns += [Column("Heard", 6, True)] if wide else []
    last = cells - sum(column.cells + 1 for column in columns)
    head = f"Version {pen.glyphs.none} {_said(fleet)}"
    columns.append(Column(head, max(1, last)))
    made = [heading(pen, columns, cells)]
    for replica in fleet.replicas:
        here = Piece(" here", "busy") if replica.name == fleet.me else Piece("")
        row: list[Line] = [[Piece(f"  {pen.cut(replica.name, 11)}"), here]]
        row.append(_state(pen, fleet, replica, word=True))
        row += [[Piece(counted(n))] for n in (replica.waiting, replica.running, replica.lent)]
        row += [[Piece(brief(replica.heard_seconds), "dim")]] if wide else []
        row.append([Piece(pen.clean(replica.version)), *_flaws(pen, fleet, replica, words=True)])
        made.append(fitted(pen, table_row(pen, columns, row), cells))
    return made


def _title(fleet: Fleet) -> str:
    alive = sum(replica.state != "lost" for replica in fleet.replicas)
    return f"Gateways {alive}/{len(fleet.replicas)}"


def _mode(pen: Pen, fleet: Fleet) -> Line:
    words, style = MODES.get(fleet.mode, (fleet.mode, "warn"))
    return [Piece(pen.clean(words), style), Piece(_age(fleet), "dim")]


def _said(fleet: Fleet) -> str:
    words, _ = MODES.get(fleet.mode, (fleet.mode, ""))
    return f"{words}{_age(fleet)}, leader no. {counted(fleet.epoch)}"


def _age(fleet: Fleet) -> str:
    """Say how old the figures are, where that matters."""
    age_s = fleet.counted_seconds_ago
    return f", figures {brief(age_s)} old" if age_s is not None and age_s > OLD_S else ""


def _state(pen: Pen, fleet: Fleet, replica: Replica, *, word: bool) -> Line:
    glyphs, state = pen.glyphs, replica.state
    if fleet.mode in UNSEEING and state != "lost":
        state = "alone" if replica.name == fleet.me else "unseen"
    symbols = {"leading": glyphs.leading, "following": glyphs.online, "lost": glyphs.offline}
    symbol = Piece(symbols.get(state, glyphs.unknown), STYLES.get(state, "warn"))
    return [symbol, Piece(f" {pen.clean(state)}" if word else " ")]


def _flaws(pen: Pen, fleet: Fleet, replica: Replica, *, words: bool = False) -> Line:
    """Mark a gateway whose settings or version are not those of this one."""
    here = next((one for one in fleet.replicas if one.name == fleet.me), replica)
    found = [] if replica.same_settings else ["other settings"]
    found += [] if replica.version == here.version else ["other version"]
    if not found:
        return []
    said = f" {', '.join(found)}" if words else ""
    return [Piece(f" {pen.glyphs.warning}", "warn"), Piece(said)]
