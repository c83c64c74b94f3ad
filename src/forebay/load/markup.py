"""HTML and SVG made of pieces that are escaped unless they were made here."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_EMPTY = frozenset({"meta", "rect", "line", "path", "circle", "polyline", "br"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(element: str, /, *children: str, **attributes: object) -> Markup:
    """Return an element; text in it is escaped, and `_` in attributes becomes `-`.

    >>> tag("td", "<b>", class_="n", aria_label='"')
    '<td class="n" aria-label="&quot;">&lt;b&gt;</td>'
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if element in _EMPTY and not children:
        return Markup(f"<{element}{shown}/>")
    return Markup(f"<{element}{shown}>{joined(children)}</{element}>")


def joined(pieces: Iterable[str]) -> Markup:
    """Return pieces one after the other, escaped where they are not markup."""
    return Markup(
        "".join(piece if isinstance(piece, Markup) else escape(piece) for piece in pieces)
    )


def table(caption: str, head: list[str], rows: list[list[str]]) -> Markup:
    """Return a table whose first column names the rows; wide ones scroll by themselves."""
    header = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    body = [
        tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:]))
        for row in rows
    ]
    made = tag("table", tag("caption", caption), tag("thead", header), tag("tbody", *body))
    return tag("div", made, class_="scroll", tabindex="0", role="group", aria_label=caption)


def pairs(caption: str, rows: list[list[str]]) -> Markup:
    """Return a table of names and what they stand for."""
    body = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in rows]
    made = tag("table", tag("caption", caption), tag("tbody", *body), class_="pairs")
    return tag("div", made, class_="scroll", tabindex="0", role="group", aria_label=caption)


def _number(value: object) -> str:
    """Return an attribute's value; coordinates need no more than a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
