"""Lines of text with styles: pieces side by side, padded, in columns. Knows no screen.

A style is a role (`title`, `bad`), not a colour: what it looks like is decided where it is shown. A
target is what a click on a piece means: `node NAME` or `key d`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.terminal.pen import Pen


class Piece(NamedTuple):
    """A stretch of text in one style."""

    text: str
    style: str = ""
    target: str = ""


Line = list[Piece]


class Column(NamedTuple):
    """One column of a table."""

    head: str
    cells: int
    right: bool = False


def cells_of(line: Line) -> int:
    """Return how wide a line is."""
    return sum(cell_len(piece.text) for piece in line)


def text_of(line: Line) -> str:
    """Return a line without its styles."""
    return "".join(piece.text for piece in line)


def fitted(pen: Pen, line: Line, cells: int, *, right: bool = False) -> Line:
    """Return a line in exactly so many cells."""
    made: Line = []
    left = max(0, cells)
    for piece in line:
        text = pen.cut(piece.text, left)
        left -= cell_len(text)
        if text:
            made.append(piece._replace(text=text))
    if left:
        made.insert(0 if right else len(made), Piece(" " * left))
    return made


def spread(pen: Pen, left: Line, right: Line, cells: int) -> Line:
    """Return two lines at the two ends of one; the left one is cut where both do not fit."""
    ending = fitted(pen, right, min(cells, cells_of(right)))
    room = cells - cells_of(ending)
    return fitted(pen, fitted(pen, left, max(0, room - 1)), room) + ending


def beside(pen: Pen, blocks: Sequence[tuple[list[Line], int]], gap: int) -> list[Line]:
    """Return blocks of lines side by side, each in its own width."""
    height = max((len(lines) for lines, _ in blocks), default=0)
    made: list[Line] = []
    for row in range(height):
        line: Line = []
        for place, (lines, cells) in enumerate(blocks):
            if place:
                line.append(Piece(" " * gap))
            line += fitted(pen, lines[row] if row < len(lines) else [], cells)
        made.append(line)
    return made


def table_row(pen: Pen, columns: Sequence[Column], cells: Sequence[Line]) -> Line:
    """Return one row, a blank between columns."""
    line: Line = []
    for place, (column, cell) in enumerate(zip(columns, cells, strict=True)):
        if place:
            line.append(Piece(" "))
        line += fitted(pen, cell, column.cells, right=column.right)
    return line


def heading(pen: Pen, columns: Sequence[Column], cells: int) -> Line:
    """Return the heads of columns; the first is the title of the whole."""
    heads = [
        [Piece(column.head, "head" if place else "title")] for place, column in enumerate(columns)
    ]
    line = fitted(pen, table_row(pen, columns, heads), cells)
    return [piece if piece.style else piece._replace(style="head") for piece in line]


def restyled(line: Line, style: str) -> Line:
    """Return a line all in one style; targets stay."""
    return [piece._replace(style=style) for piece in line]
