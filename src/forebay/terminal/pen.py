"""How things are written: in cells of a terminal, with glyphs that it has, and never as commands.

Whatever comes from outside passes through `Pen.clean`: control characters, escape sequences, marks
that turn the direction of writing and the like become `?`, so a node's name can neither move the
cursor nor set a clipboard. Widths are in cells: a wide character has two.
"""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

MARKS_MAX = 2
"""Combining marks on one letter; real scripts need no more, and more would spill over the lines."""
LETTERS_MAX = 2000
"""Of one text; no terminal shows more in the place that it has."""


class Glyphs(NamedTuple):
    """The characters to draw with."""

    bar: str
    """A cell that is empty, partly full, and full, from left to right."""
    level: str
    """The same from the bottom up."""
    slot_taken: str
    slot_free: str
    dots: str
    none: str
    leading: str
    online: str
    loading: str
    draining: str
    offline: str
    unknown: str
    pause: str
    good: str
    warning: str
    error: str
    note: str
    arrow: str
    chosen: str
    up_down: str
    cursor: str


UNICODE = Glyphs(
    bar=" ▏▎▍▌▋▊▉█", level=" ▁▂▃▄▅▆▇█", slot_taken="▰", slot_free="▱", dots="…", none="·",
    leading="★", online="●", loading="◐", draining="◒", offline="✕", unknown="?", pause="‖",
    good="✓", warning="▲", error="✕", note="•", arrow="→", chosen="▶", up_down="↑↓", cursor="▏",
)  # fmt: skip
ASCII = Glyphs(
    bar=" #", level=" .:#", slot_taken="#", slot_free=".", dots="~", none="-",
    leading="@", online="*", loading="+", draining="%", offline="x", unknown="?", pause="=",
    good="+", warning="!", error="x", note="-", arrow=">", chosen=">", up_down="jk", cursor="_",
)  # fmt: skip


class Pen:
    """Writes for one terminal."""

    def __init__(self, *, ascii_only: bool = False) -> None:
        self.is_ascii = ascii_only
        self.glyphs = ASCII if ascii_only else UNICODE

    def clean(self, text: object) -> str:
        """Return text from outside as harmless letters, one line of them.

        >>> Pen().clean("gpu\\x1b]52;c;aGk=\\x07\\n1"), Pen(ascii_only=True).clean("café 東")
        ('gpu?]52;c;aGk=??1', 'caf? ?')
        """
        found = str(text)[:LETTERS_MAX]
        if self.is_ascii:
            return "".join(letter if " " <= letter <= "~" else "?" for letter in found)
        if found.isascii() and found.isprintable():
            return found
        return _readable(found)

    def cut(self, text: object, cells: int) -> str:
        """Return as much of a text as fits, with dots where it goes on.

        >>> Pen().cut("東京タワー", 6), Pen().cut("short", 6), Pen().cut("x", 0)
        ('東京…', 'short', '')
        """
        found = self.clean(text)
        if cell_len(found) <= cells:
            return found
        if cell_len(found.rstrip(" ")) <= cells:  # only blanks are lost
            return set_cell_size(found, max(0, cells))
        return set_cell_size(found, cells - 1).rstrip() + self.glyphs.dots if cells > 0 else ""

    def fit(self, text: object, cells: int, *, right: bool = False) -> str:
        """Return a text in exactly so many cells.

        >>> Pen().fit("東京", 6), Pen().fit(7, 3, right=True)
        ('東京  ', '  7')
        """
        found = self.cut(text, cells)
        blank = " " * (cells - cell_len(found))
        return blank + found if right else found + blank

    def wrap(self, text: object, cells: int, lines_max: int) -> list[str]:
        """Return a text in lines of at most so many cells, broken between words.

        >>> Pen().wrap("Start its server, or take it out", 12, 2)
        ['Start its', 'server, or…']
        """
        lines: list[str] = []
        rest = self.clean(text).strip()
        while rest and len(lines) < lines_max:
            if cell_len(rest) <= cells or len(lines) == lines_max - 1:
                lines.append(self.cut(rest, cells))
                break
            head = set_cell_size(rest, cells).rstrip(" ")
            if not rest[len(head) :].startswith(" ") and " " in head:
                head = head.rpartition(" ")[0]
            if not head:
                break
            lines.append(head.rstrip())
            rest = rest[len(head) :].lstrip()
        return lines

    def bar(self, value: float, top: float, cells: int) -> str:
        """Return a bar; what is not nothing shows at least a sliver.

        >>> Pen().bar(3, 4, 4), Pen().bar(0, 4, 4), Pen().bar(0.001, 4, 4)
        ('███ ', '    ', '▏   ')
        """
        steps = len(self.glyphs.bar) - 1
        filled = _scaled(value, top, cells * steps)
        whole, part = divmod(filled, steps)
        drawn = self.glyphs.bar[-1] * whole + (self.glyphs.bar[part] if part else "")
        return drawn.ljust(cells)[: max(0, cells)]

    def slots(self, taken: int, slots: int, cells: int) -> tuple[str, str]:
        """Return the taken and the free part of a slot bar; a glyph a slot where there is room.

        >>> Pen().slots(1, 4, 6), Pen().slots(32, 64, 6)
        (('▰', '▱▱▱'), ('▰▰▰', '▱▱▱'))
        """
        length = min(max(0, slots), max(0, cells))
        full = min(length, _scaled(taken, slots, length))
        if full == length and taken < slots:
            full = max(0, length - 1)  # not full is not drawn as full
        return self.glyphs.slot_taken * full, self.glyphs.slot_free * (length - full)

    def chart(self, values: list[float], top: float, rows: int) -> list[str]:
        """Return columns side by side, a row of text for each row, the upper first.

        >>> Pen().chart([0, 1, 2, 4], 4, 1), Pen().chart([1, 4], 4, 2)
        ([' ▂▄█'], [' █', '▄█'])
        """
        steps = len(self.glyphs.level) - 1
        heights = [_scaled(value, top, rows * steps) for value in values]
        return [
            "".join(
                self.glyphs.level[min(steps, max(0, height - row * steps))] for height in heights
            )
            for row in reversed(range(rows))
        ]


def _scaled(value: float, top: float, steps: int) -> int:
    """Return how many of `steps` a value fills: none only for nothing, all only at the top."""
    if value <= 0 or steps <= 0:
        return 0
    if top <= 0 or value >= top:
        return steps
    return max(1, min(steps, int(value / top * steps)))


def _readable(text: str) -> str:
    letters: list[str] = []
    marks = 0
    for letter in unicodedata.normalize("NFC", text):
        if "\ufe00" <= letter <= "\ufe0f":  # would change the width of the letter before
            continue
        if unicodedata.category(letter) in ("Mn", "Me", "Mc"):
            marks += 1
            if marks <= MARKS_MAX and letters:
                letters.append(letter)
            continue
        marks = 0
        letters.append(letter if letter.isprintable() else "?")
    return "".join(letters)
