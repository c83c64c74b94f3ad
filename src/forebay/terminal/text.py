"""Text for a terminal: harmless, cut to cells, in columns, as bars, charts and amounts.

Whatever comes from outside passes through `clean`: control characters, escape sequences, marks
that turn the direction of writing and the like become `?`, so a node's name can neither move the
cursor nor set a clipboard. Widths are in cells: a wide character has two.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

GOOD, BUSY, WARN, BAD = "green", "cyan", "yellow", "bold red"
STRONG, DIM = "bold", "dim"
ENDLESS = 10_000
"""Rows, or cells, for what need not fit anywhere."""
MARKS_MAX = 2
"""Combining marks on one letter; real scripts need no more, and more would spill over the lines."""
LETTERS_MAX = 2000
"""Of one text; no terminal shows more in the place that it has."""
BARS, LEVELS = " ▏▎▍▌▋▊▉█", " ▁▂▃▄▅▆▇█"
ASCII = str.maketrans(
    "●◐◒✕★▲•·→▶…✓‖↑↓▰▱" + BARS[1:] + LEVELS[1:-1],
    "*+%x@!-->>~+=^v#." + ":::#####" + "...:::#",
)  # fmt: skip
"""How each sign is drawn where there is only ASCII."""
_CONSOLE = Console(width=80)  # Rich wants one to wrap text


def clean(text: object) -> str:
    """Return text from outside as harmless letters, one line of them.

    >>> clean("gpu\\x1b]52;c;aGk=\\x07\\n1"), clean("café 東")
    ('gpu?]52;c;aGk=??1', 'café 東')
    """
    found = str(text)[:LETTERS_MAX]
    if found.isascii() and found.isprintable():
        return found
    letters: list[str] = []
    marks = 0
    for letter in unicodedata.normalize("NFC", found):
        if "\ufe00" <= letter <= "\ufe0f":  # would change the width of the letter before
            continue
        is_mark = unicodedata.category(letter) in ("Mn", "Me", "Mc")
        marks = marks + 1 if is_mark else 0
        if not is_mark:
            letters.append(letter if letter.isprintable() else "?")
        elif marks <= MARKS_MAX and letters:
            letters.append(letter)
    return "".join(letters)


def to_ascii(text: str) -> str:
    """Return a text that was cleaned, in as many cells, in ASCII only.

    >>> to_ascii("● café 東 ▰▱ …")
    '* caf? ?? #. ~'
    """
    if text.isascii():
        return text
    drawn = text.translate(ASCII)
    return "".join(letter if letter.isascii() else "?" * cell_len(letter) for letter in drawn)


def line(*pieces: object) -> Text:
    """Return one line; a piece is a text, or a pair of a text and its style."""
    made = Text(no_wrap=True, end="")
    for piece in pieces:
        if isinstance(piece, Text):
            made.append_text(piece)
        elif isinstance(piece, tuple):
            made.append(clean(piece[0]), piece[1] or None)
        else:
            made.append(clean(piece))
    return made


def fit(text: Text, cells: int, *, right: bool = False) -> Text:
    """Return a text in exactly so many cells, with dots where it was cut.

    >>> fit(line("東京タワー"), 7).plain, fit(line(7), 3, right=True).plain
    ('東京タ…', '  7')
    """
    if cells <= 0:
        return line()
    text.truncate(cells, overflow="ellipsis", pad=not right)
    if right:
        text.pad_left(cells - text.cell_len)
    return text


def wrap(text: str, cells: int, lines_max: int = 4) -> list[str]:
    """Return a text in lines of at most so many cells, broken between words.

    >>> wrap("Start its server, or take it out", 12, 2)
    ['Start its', 'server, or…']
    """
    found = line(text).wrap(_CONSOLE, max(1, cells), no_wrap=False)
    lines = [part.plain.rstrip() for part in found if part.plain]
    if len(lines) > lines_max > 0:
        lines[lines_max - 1] = fit(line(lines[lines_max - 1], "…"), cells).plain.rstrip()
    return lines[: max(0, lines_max)]


# -- tables


def amount(value: int, style: str = "") -> Text:
    """Return a count; nothing is dim."""
    return line((counted(value), style if value else DIM))


def known(text: str, style: str = "") -> Text:
    """Return an amount, or a dim dot where it is not known."""
    return line(("·", DIM) if text == "-" else (text, style))


class Column(NamedTuple):
    """One column of a table, and how a cell of it is made from an item."""

    head: str
    cells: int
    cell: Callable[[Any], Text]
    from_cells: int = 0
    """How wide the table has to be for this column."""
    cells_max: int = 0
    """How wide it becomes where there is room."""
    right: bool = False


def numeric(
    head: str, cells: int, cell: Callable[[Any], Text], from_cells: int = 0, cells_max: int = 0
) -> Column:
    """Return a column of numbers, which stand at its right."""
    return Column(head, cells, cell, from_cells, cells_max, right=True)


def table(title: str, columns: Sequence[Column], items: Iterable[object], cells: int) -> list[Text]:
    """Return a heading, of which the title is the first part, and a line for each item."""
    shown = [column for column in columns if cells >= column.from_cells]
    widths = [column.cells for column in shown]
    spare = cells - sum(widths) - len(widths) + 1
    widths[0] += min(0, spare)
    for place, column in sorted(enumerate(shown), key=lambda pair: pair[1].cells_max):
        more = max(0, min(spare, column.cells_max - column.cells))
        widths[place] += more
        spare -= more
    fitted = list(zip(shown, widths, strict=True))
    heads = [fit(line(column.head), width, right=column.right) for column, width in fitted[1:]]
    made = [Text(" ").join([heading(title, widths[0]), *heads])]
    made[0].stylize_before("dim underline")
    for item in items:
        row = [fit(column.cell(item), width, right=column.right) for column, width in fitted]
        made.append(Text(" ").join(row))
    return made


def named_texts(title: str, pairs: tuple[tuple[str, str], ...], cells: int) -> list[Text]:
    """Return texts with their names before them, wrapped."""
    made = [heading(title, cells)]
    wide = max(len(name) for name, _ in pairs) + 2
    for name, text in pairs:
        for place, part in enumerate(wrap(text or "none", cells - wide, 3)):
            made.append(line((f"{'' if place else name:{wide}}", STRONG), part))
    return made


def heading(title: str, cells: int) -> Text:
    """Return a line that begins a part of the screen."""
    text = fit(line((title, "bold underline not dim")), cells)
    text.stylize_before("dim underline")
    return text


# -- bars and charts


def _scaled(value: float, top: float, steps: int) -> int:
    """Return how many of `steps` a value fills: none only for nothing, all only at the top."""
    if value <= 0 or steps <= 0:
        return 0
    if top <= 0 or value >= top:
        return steps
    return max(1, min(steps, int(value / top * steps)))


def bar(value: float, top: float, cells: int) -> str:
    """Return a bar; what is not nothing shows at least a sliver.

    >>> bar(3, 4, 4), bar(0, 4, 4), bar(0.001, 4, 4)
    ('███', '', '▏')
    """
    whole, part = divmod(_scaled(value, top, cells * 8), 8)
    return BARS[8] * whole + BARS[part].strip()


def slot_bar(taken: int, slots: int, cells: int) -> tuple[str, str]:
    """Return the taken and the free part of a bar; a sign a slot where there is room.

    >>> slot_bar(1, 4, 6), slot_bar(32, 64, 6)
    (('▰', '▱▱▱'), ('▰▰▰', '▱▱▱'))
    """
    length = min(max(0, slots), cells)
    full = _scaled(taken, slots, length)
    if full == length and taken < slots:
        full = max(0, length - 1)  # not full is not drawn as full
    return "▰" * full, "▱" * (length - full)


def chart(values: Sequence[float], top: float, rows: int) -> list[str]:
    """Return columns side by side, a row of text for each row, the upper first.

    Textual's Sparkline begins at the least value: a queue that is always full would look empty.

    >>> chart([0, 1, 2, 4], 4, 1), chart([1, 4], 4, 2)
    ([' ▂▄█'], [' █', '▄█'])
    """
    heights = [_scaled(value, top, rows * 8) for value in values]
    return [
        "".join(LEVELS[min(8, max(0, height - row * 8))] for height in heights)
        for row in reversed(range(rows))
    ]


# -- amounts in few letters; None is what is not known


def brief(seconds: float | None) -> str:
    """Return a duration in at most six letters.

    >>> [brief(s) for s in (0.25, 12.4, 812.2, 7300, 200_000, None)]
    ['0.2 s', '12 s', '14 min', '2 h', '2 d', '-']
    """
    if seconds is None:
        return "-"
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.0f} h"
    return f"{min(9999, seconds / 86_400):.0f} d"


def counted(number: float) -> str:
    """Return a count in at most five letters, a sign aside.

    >>> [counted(n) for n in (0, 9999, 12_345, 4_500_000, 10**15, 2.5)]
    ['0', '9999', '12.3k', '4.5M', '>999G', '2.5']
    """
    if number < 0:
        return f"-{counted(-number)}"
    if number < 9999.5:
        return f"{number:.1f}".removesuffix(".0") if number < 100 else f"{number:.0f}"
    for letter in "kMG":
        number /= 1000
        if number < 999.5:
            return f"{number:.1f}".removesuffix(".0")[:4].removesuffix(".") + letter
    return ">999G"


def memory(used: float | None, total: float | None) -> str:
    """Return how much of a memory is taken, in GiB.

    >>> memory(9_123_456_789, 25_769_803_776), memory(None, 25_769_803_776), memory(None, None)
    ('8.5/24G', '24G', '-')
    """
    gib = [max(0.0, amount) / 2**30 for amount in (used, total) if amount is not None]
    parts = [f"{n:.1f}".removesuffix(".0") if n < 10 else counted(round(n)) for n in gib]
    return "/".join(parts) + "G" if parts else "-"


def share(part: float | None) -> str:
    """Return a share of one as percent.

    >>> share(0.931), share(None)
    ('93%', '-')
    """
    return "-" if part is None else f"{min(9.99, max(0.0, part)):.0%}"


def speed(times: float | None) -> str:
    """Return how fast a node is, against what is usual.

    >>> speed(0.432), speed(12.0), speed(None)
    ('0.43x', '12x', '-')
    """
    if times is None:
        return "-"
    return f"{times:.2f}x" if times < 9.995 else f"{counted(round(times))}x"


def plural(number: float, one: str, many: str = "") -> str:
    """Return a number with its noun.

    >>> plural(1, "request"), plural(0, "batch", "batches")
    ('1 request', '0 batches')
    """
    return f"{counted(number)} {one if number == 1 else many or one + 's'}"
