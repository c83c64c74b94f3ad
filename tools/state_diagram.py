"""Draw a Mermaid state diagram as SVG, so that the site needs no script and no outside host.

One column for each state, one row for each move: a table of transitions as it is, and nothing that
could overlap. Only what `tools.reference.diagrams` writes is understood. The colours are
those of the page around it (docs/stylesheets/forebay.css).
"""

import re
from html import escape
from typing import NamedTuple

MOVE = re.compile(r"^ *(\S+) --> ([^\s:]+)(?:: (.*))?$")
OUTSIDE = "[*]"
COLUMN, ROW, HEAD, MARGIN = 92, 28, 54, 8
BOX_WIDTH, BOX_HEIGHT = 82, 30
FIRST = 24  # how far in the first line is: that of the outside


class Move(NamedTuple):
    """One transition."""

    start: str
    target: str
    cause: str


def svg(mermaid: str, name: str) -> str:
    """Return the drawing of a state diagram; `name` is read to those who cannot see it."""
    moves = _moves(mermaid)
    starts, targets = [move.start for move in moves], [move.target for move in moves]
    states = list(dict.fromkeys([*starts, *targets]))
    ends = {move.start for move in moves if move.target == OUTSIDE}
    shown = [move for move in moves if move.target != OUTSIDE]
    columns = [OUTSIDE, *(state for state in states if state not in {OUTSIDE, *ends})]
    columns += [state for state in states if state in ends]
    x_of = {
        state: FIRST + COLUMN * at - (COLUMN // 4 if at else 0) for at, state in enumerate(columns)
    }
    width = x_of[columns[-1]] + BOX_WIDTH // 2 + MARGIN
    height = HEAD + ROW * len(shown) + MARGIN
    parts = [
        f'<svg class="states" viewBox="0 0 {width} {height}" width="{width}" role="img"'
        f' aria-label="{escape(name)}: {escape(_in_words(shown))}">',
        *(_column(state, x_of[state], height, state in ends) for state in columns),
        *(_row(move, x_of, HEAD + ROW * at + ROW // 2) for at, move in enumerate(shown)),
        "</svg>",
    ]
    return f'<div class="states" tabindex="0">{"".join(parts)}</div>'


def _moves(mermaid: str) -> list[Move]:
    first, *lines = mermaid.strip().splitlines()
    assert first.strip() == "stateDiagram-v2", first
    found = [(MOVE.match(line), line) for line in lines]
    unread = [line for match, line in found if match is None]
    assert not unread, f"not understood: {unread}"
    return [Move(match[1], match[2], match[3] or "") for match, _ in found if match is not None]


def _in_words(moves: list[Move]) -> str:
    told = (f"{move.start} to {move.target}, {move.cause or 'at first'}" for move in moves)
    return "; ".join(told).replace(OUTSIDE, "outside")


def _column(state: str, x: int, height: int, is_end: bool) -> str:
    line = f'<path class="life" d="M{x} {MARGIN + BOX_HEIGHT}V{height - 4}"/>'
    if state == OUTSIDE:
        return f'{line}<circle class="outside" cx="{x}" cy="{MARGIN + BOX_HEIGHT // 2}" r="7"/>'
    left, kind = x - BOX_WIDTH // 2, "end" if is_end else "state"
    box = f'<rect class="{kind}" x="{left}" y="{MARGIN}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}"'
    return f'{line}{box} rx="6"/><text x="{x}" y="{MARGIN + 20}">{escape(state)}</text>'


def _row(move: Move, x_of: dict[str, int], y: int) -> str:
    start, target = x_of[move.start], x_of[move.target]
    onward = 1 if target > start else -1
    tip = target - onward * 3
    arrow = f"M{tip} {y}l{-8 * onward} -4v8z"
    side = "cause" if onward == 1 else "cause back"
    label = f'<text class="{side}" x="{start + onward * 9}" y="{y - 5}">{escape(move.cause)}</text>'
    return (
        f'<circle class="from" cx="{start}" cy="{y}" r="3.5"/>'
        f'<path class="move" d="M{start} {y}H{tip - onward * 6}"/><path class="tip" d="{arrow}"/>'
        f"{label if move.cause else ''}"
    )
