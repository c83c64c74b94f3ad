"""The whole picture: which panels there are for a size, and how many rows each gets.

Pure: the same view and the same size make the same lines, each exactly as wide as the terminal and
as many as it has rows. So the screen can find what has changed by comparing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from forebay.terminal.digits import DIGITS_ROWS
from forebay.terminal.fleet_panel import fleet_lines, fleet_rows_wanted
from forebay.terminal.foot import help_lines, key_line, message_line, tab_line
from forebay.terminal.lines import Line, Piece, beside, fitted
from forebay.terminal.node_table import detail_lines, faded, node_lines
from forebay.terminal.side_panels import (
    job_lines,
    model_lines,
    problem_lines,
    remedy_lines,
    trouble_lines,
    trouble_rows_wanted,
)
from forebay.terminal.top_panels import caption, figures, header, queue_panel

if TYPE_CHECKING:
    from forebay.terminal.pen import Pen
    from forebay.terminal.values import Snapshot
    from forebay.terminal.view import View

CELLS_MIN = 20
"""Narrower than this, lines are drawn as if it were so wide, and cut."""
ENDLESS = 10_000
"""Rows for a picture that need not fit anywhere."""
QUEUE_ROWS, QUEUE_ROWS_MAX = 3, 12
BIG_FROM_ROWS = 29
"""Of the body; below this, rows are for what there is, not for how it looks."""
SIDE_ROWS, SIDE_ROWS_MAX = 3, 24
TROUBLE_ROWS = 4


class Rows(NamedTuple):
    """How many rows each panel gets, headings aside."""

    queue: int
    nodes: int
    side: int
    troubles: int
    gaps: int = 0
    """Blank lines between panels."""
    figures: int = 1
    """How high the numbers are."""
    fleet: int = 0
    """Of the gateways that share the queue, heading included; 1 is all of them in one line."""


def draw(pen: Pen, view: View, cells: int, rows: int) -> list[Line]:
    """Return exactly so many lines of exactly so many cells."""
    wide = max(CELLS_MIN, cells)
    foot = [message_line(pen, view, wide), key_line(pen, view, wide)]
    body = _body(pen, view, wide, max(0, rows - len(foot) - 1))
    if not view.link.is_live and view.link.since_s is not None:
        body = faded(body)
    body = body[: max(0, rows - len(foot) - 1)]
    body += [[]] * (rows - len(foot) - 1 - len(body))
    lines = [header(pen, view, wide), *body, *foot]
    kept = lines[: max(0, rows - 1)] + foot[-1:] if rows < len(lines) else lines
    return [fitted(pen, line, cells) for line in kept[: max(0, rows)]]


def draw_still(pen: Pen, view: View, cells: int) -> list[Line]:
    """Return everything, in as many lines as it takes; for a pipe."""
    assert view.snapshot is not None
    wide = max(CELLS_MIN, cells)
    rows = Rows(QUEUE_ROWS, ENDLESS, ENDLESS, ENDLESS, gaps=1, fleet=ENDLESS)
    return [header(pen, view, wide), [], *_overview(pen, view, view.snapshot, wide, rows)]


def _body(pen: Pen, view: View, cells: int, rows: int) -> list[Line]:
    if view.is_helping:
        return help_lines(pen, cells)
    snapshot = view.snapshot
    if snapshot is None:
        return [[], [Piece(" Waiting for the first picture.", "dim")]]
    if view.panel == 0:
        planned = plan(pen, view, snapshot, cells, rows)
        return _overview(pen, view, snapshot, cells, planned)
    left = rows - 4
    top = [tab_line(pen, view, cells), *figures(pen, snapshot, cells), []]
    if view.panel == 1:
        fleet = fleet_lines(pen, snapshot, cells, left // 3)
        return [*top, *fleet, *_nodes_panel(pen, view, cells, left - len(fleet))]
    if view.panel == 2:
        return top + _models_panel(pen, view, snapshot, cells, left)
    troubles = trouble_lines(pen, snapshot, cells, trouble_rows_wanted(pen, snapshot, cells) or 1)
    return top + troubles + [[]] + remedy_lines(pen, snapshot, cells, ENDLESS)


# -- the overview


def plan(pen: Pen, view: View, snapshot: Snapshot, cells: int, rows: int) -> Rows:
    """Return how to share out the rows: needs first, then wishes, then air.

    What does not fit at all is cut from the bottom, so the order of panels is that of importance.
    """
    fleet_wanted = fleet_rows_wanted(snapshot)
    fleet = min(1, fleet_wanted)
    headings = 4 + 2 + len(caption(pen, snapshot, cells)) + fleet
    room = rows - headings - QUEUE_ROWS
    nodes_wanted = max(1, len(view.nodes()))
    side_wanted = _side_wanted(view, snapshot)
    troubles_wanted = trouble_rows_wanted(pen, snapshot, cells) or 1
    nodes = min(nodes_wanted, 3)
    troubles = min(troubles_wanted, TROUBLE_ROWS, max(1, room - nodes - 2))
    side = min(side_wanted, SIDE_ROWS, max(1, room - nodes - troubles))
    room -= nodes + troubles + side
    more = _granted(nodes_wanted - nodes, room)
    nodes, room = nodes + more, room - more
    more = _granted(min(side_wanted, SIDE_ROWS_MAX) - side, room)
    side, room = side + more, room - more
    more = _granted(troubles_wanted - troubles, room)
    troubles, room = troubles + more, room - more
    if 0 < fleet_wanted - fleet <= room:
        fleet, room = fleet_wanted, room - fleet_wanted + fleet
    blanks = 4 + bool(fleet)
    gaps = 1 if room >= blanks else 0
    room -= blanks * gaps
    is_big = rows >= BIG_FROM_ROWS and room >= DIGITS_ROWS - 1 and cells >= 80 and not pen.is_ascii
    room -= DIGITS_ROWS - 1 if is_big else 0
    queue = QUEUE_ROWS + _granted(QUEUE_ROWS_MAX - QUEUE_ROWS, room)
    high = DIGITS_ROWS if is_big else 1
    return Rows(queue, max(1, nodes), max(1, side), max(1, troubles), gaps, high, fleet)


def _granted(wanted: int, room: int) -> int:
    return max(0, min(wanted, room))


def _side_wanted(view: View, snapshot: Snapshot) -> int:
    others = bool(snapshot.jobs.batches.open) + bool(snapshot.sessions.held)
    jobs = len(snapshot.jobs.types) + others
    return max(1, len(view.models()), jobs, len(snapshot.problems))


def _overview(pen: Pen, view: View, snapshot: Snapshot, cells: int, rows: Rows) -> list[Line]:
    gap: list[Line] = [[]] * rows.gaps
    return [
        *caption(pen, snapshot, cells),
        *figures(pen, snapshot, cells, rows.figures),
        *gap,
        *queue_panel(pen, view, cells, rows.queue),
        *gap,
        *fleet_lines(pen, snapshot, cells, rows.fleet),
        *(gap if rows.fleet and snapshot.fleet else []),
        *node_lines(pen, view, cells, rows.nodes),
        *gap,
        *_side_by_side(pen, view, snapshot, cells, rows.side),
        *gap,
        *trouble_lines(pen, snapshot, cells, rows.troubles),
    ]


def _side_by_side(pen: Pen, view: View, snapshot: Snapshot, cells: int, rows: int) -> list[Line]:
    """Return models, jobs and problems beside each other; the last goes where it is narrow."""
    gap = 2
    jobs = 28 if cells < 110 else cells // 3
    if not snapshot.jobs.types and not snapshot.jobs.batches.open:
        jobs = 25
    if cells < 60:
        return model_lines(pen, view, cells, rows)
    if cells < 76:
        models = cells - jobs - gap
        blocks = [(model_lines(pen, view, models, rows), models)]
        return beside(pen, [*blocks, (job_lines(pen, snapshot, jobs, rows), jobs)], gap)
    left = cells - jobs - 2 * gap
    models = left * 28 // 48
    problems = left - models
    blocks = [
        (model_lines(pen, view, models, rows), models),
        (job_lines(pen, snapshot, jobs, rows), jobs),
        (problem_lines(pen, snapshot, problems, rows), problems),
    ]
    return beside(pen, blocks, gap)


# -- the other panels


def _nodes_panel(pen: Pen, view: View, cells: int, rows: int) -> list[Line]:
    node = view.chosen_node()
    facts = detail_lines(pen, node, cells, max(0, min(12, rows // 2))) if node is not None else []
    room = max(1, rows - len(facts) - 2)
    table = node_lines(pen, view, cells, room)
    return [*table, [], *facts]


def _models_panel(pen: Pen, view: View, snapshot: Snapshot, cells: int, rows: int) -> list[Line]:
    if cells < 60:
        half = max(1, rows // 2 - 2)
        models = model_lines(pen, view, cells, half)
        return [*models, [], *job_lines(pen, snapshot, cells, half)]
    left = (cells - 2) // 2
    blocks = [
        (model_lines(pen, view, left, rows - 1), left),
        (job_lines(pen, snapshot, cells - left - 2, rows - 1), cells - left - 2),
    ]
    return beside(pen, blocks, 2)
