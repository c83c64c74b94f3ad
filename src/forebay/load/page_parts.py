"""What the pages are made of: the frame, notes, tiles, plots with their tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.load.markup import Markup, joined, table, tag
from forebay.load.page_style import STYLE
from forebay.load.scatter import dot

if TYPE_CHECKING:
    from collections.abc import Iterable

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Nothing is fetched and nothing is run, wherever the file is opened."""


def page(title: str, *parts: str) -> str:
    """Return a whole page."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", title),
        tag("style", Markup(STYLE)),
    )
    body = tag("body", tag("main", *parts))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def notes(texts: Iterable[str], kind: str = "note") -> Markup:
    """Return what must not be overlooked."""
    return joined(tag("p", text, class_=kind, role="note") for text in texts)


def tiles(rows: list[tuple[str, str, str]]) -> Markup:
    """Return the first figures to look at: name, value, and a word about it."""
    return tag(
        "dl",
        *(
            tag("div", tag("dt", name), tag("dd", value, tag("small", more)))
            for name, value, more in rows
        ),
        class_="tiles",
    )


def legend(names: list[tuple[str, int]]) -> Markup:
    """Return which line is whose: the same strokes as in the plot."""
    return tag(
        "ul",
        *(
            tag(
                "li",
                tag(
                    "svg",
                    tag("line", x1=0, x2=26, y1=5, y2=5, class_=f"line s{colour}"),
                    viewBox="0 0 26 10",
                    aria_hidden="true",
                ),
                name,
            )
            for name, colour in names
        ),
        class_="legend",
    )


def dots_legend(names: list[tuple[str, int]]) -> Markup:
    """Return which points are whose: the same shapes as in the plot."""
    return tag(
        "ul",
        *(
            tag("li", tag("svg", dot(13, 5, colour), viewBox="0 0 26 10", aria_hidden="true"), name)
            for name, colour in names
        ),
        class_="legend",
    )


def figure(
    title: str, about: str, key: Markup, drawing: Markup, head: list[str], rows: list[list[str]]
) -> Markup:
    """Return a plot with its key, and the same as a table for who cannot or will not see it."""
    return tag(
        "figure",
        tag("figcaption", tag("h3", title), tag("p", about)),
        key,
        drawing,
        tag("details", tag("summary", "The same as a table"), table(title, head, rows)),
    )
