"""The parts of a report: escaped HTML and SVG, the frame, tiles, plots with tables, the style.

Light and dark, wide and narrow, on paper; nothing is fetched from elsewhere.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Nothing is fetched and nothing is run, wherever the file is opened."""
_EMPTY = frozenset({"meta", "rect", "path"})
STYLE = """
:root { color-scheme: light dark;
  --ground:#fbfbfa; --card:#ffffff; --ink:#1c2126; --soft:#5a636d; --rule:#dfe3e6; --grid:#e9ecee;
  --s1:#1f63c4; --s2:#b4530a; --s3:#0b7f74; --s4:#7a45bd; --s5:#a82a72; --s6:#5c6770;
  --bad:#b3261e; --warn:#fff4dc; --warn-edge:#d99a1c; --bar:#c9d9ee; }
@media (prefers-color-scheme: dark) { :root {
  --ground:#14171a; --card:#1c2024; --ink:#e8eaec; --soft:#a2abb4; --rule:#343b42; --grid:#2a3036;
  --s1:#74adff; --s2:#f2a061; --s3:#45cdbc; --s4:#bd9bf6; --s5:#f28ac0; --s6:#a5b0ba;
  --bad:#ff8f85; --warn:#3a2f14; --warn-edge:#d9a43a; --bar:#2d4464; } }
* { box-sizing:border-box }
body { margin:0; background:var(--ground); color:var(--ink);
  font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif; }
main { max-width:1120px; margin:0 auto; padding:28px 20px 48px }
h1 { font-size:1.7rem; line-height:1.2; margin:0 0 4px; letter-spacing:-.01em;
  overflow-wrap:anywhere }
h2 { font-size:1.15rem; margin:36px 0 12px }
h3 { font-size:1rem; margin:0 }
p { margin:6px 0 } .soft { color:var(--soft) } .soft, dd, td { overflow-wrap:anywhere }
.tiles { display:grid; grid-template-columns:repeat(auto-fit,minmax(150px,1fr)); gap:12px;
  margin:22px 0 8px; padding:0 }
.tiles > div { background:var(--card); border:1px solid var(--rule); border-radius:10px;
  padding:12px 14px }
.tiles dt { color:var(--soft); font-size:.85rem }
.tiles dd { margin:2px 0 0; font-size:1.35rem; font-weight:650; line-height:1.25;
  font-variant-numeric:tabular-nums }
.tiles dd small { display:block; font-size:.8rem; font-weight:400; color:var(--soft) }
.note { background:var(--warn); border-left:4px solid var(--warn-edge); border-radius:6px;
  padding:10px 14px; margin:12px 0 }
.note.bad { border-left-color:var(--bad) }
.plots { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));
  gap:16px; align-items:start }
figure { margin:0; background:var(--card); border:1px solid var(--rule); border-radius:10px;
  padding:14px 14px 8px; min-width:0 }
figure p { font-size:.87rem; color:var(--soft) }
svg { display:block; width:100%; overflow:visible }
path { fill:none; stroke-linejoin:round; vector-effect:non-scaling-stroke }
.plot { display:grid; grid-template-columns:auto 1fr; gap:8px; margin:18px 20px 4px 0;
  color:var(--soft); font-size:12px; font-variant-numeric:tabular-nums }
.plot svg { height:200px; border-bottom:1px solid var(--soft) }
.plot div { display:flex; justify-content:space-between }
.up { flex-direction:column; text-align:right } .up span { height:0; line-height:0 }
.across { grid-column:2 } .across span { display:flex; justify-content:center; width:0;
  white-space:nowrap }
.plot .name { grid-column:2; margin:-4px 0 0; text-align:center; font-size:inherit }
.legend { display:flex; flex-wrap:wrap; gap:2px 16px; list-style:none; padding:0; margin:8px 0 0;
  font-size:.87rem }
.legend li { display:flex; align-items:center; gap:6px }
.legend svg { width:26px; height:10px; flex:none }
.grid { stroke:var(--grid) } .line { stroke-width:2.2 }
.dots { stroke-width:5; stroke-linecap:round; stroke-opacity:.75 }
.s1 { stroke:var(--s1) } .s2 { stroke:var(--s2) } .s3 { stroke:var(--s3) } .s4 { stroke:var(--s4) }
.s5 { stroke:var(--s5) } .s6 { stroke:var(--s6) } .failed { stroke:var(--bad); stroke-width:4 }
.line.s2 { stroke-dasharray:7 3 } .line.s3 { stroke-dasharray:2 3 }
.line.s4 { stroke-dasharray:9 3 2 3 } .line.s5 { stroke-dasharray:12 4 }
.line.s6 { stroke-dasharray:4 4 } .dots.s2, .dots.s4, .dots.s6 { stroke-linecap:square }
.dots.s3, .dots.s4 { stroke-width:3.4 }
.bar { height:18px; min-width:140px } .offered { fill:var(--bar) } .served { fill:var(--s1) }
.fair { stroke:var(--s2); stroke-width:2.5 }
.scroll { overflow-x:auto; background:var(--card); border:1px solid var(--rule);
  border-radius:10px; margin:0 0 14px }
.scroll:focus-visible, summary:focus-visible { outline:2px solid var(--s1); outline-offset:2px }
table { border-collapse:collapse; width:100%; font-size:.9rem;
  font-variant-numeric:tabular-nums }
caption { text-align:left; padding:12px 14px 6px; font-weight:600 }
th, td { padding:6px 14px; text-align:right; border-top:1px solid var(--rule); white-space:nowrap }
th:first-child { text-align:left } .wide th:last-child { text-align:left }
thead th { color:var(--soft); font-weight:500 }
tbody th { font-weight:500 } .wide td:last-child { text-align:left; white-space:normal }
.pairs td { text-align:left; white-space:normal; width:100%; min-width:11em }
figure > .scroll caption { display:none }
figure .scroll { border:0; border-radius:0; margin:0; max-height:260px }
figure th, figure td { padding:3px 8px } figure caption { padding:6px 8px }
details { margin:6px 0 4px } summary { cursor:pointer; font-size:.87rem; color:var(--soft) }
footer { margin-top:36px; color:var(--soft); font-size:.87rem }
@media (max-width:560px) { main { padding:20px 12px 36px } th, td { padding:6px 10px }
  h1 { font-size:1.4rem } .tiles { grid-template-columns:1fr 1fr } }
@media print { body { background:#fff } figure, .scroll { break-inside:avoid } }
"""


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


def legend(looks: list[tuple[str, str]], kind: str = "line") -> Markup:
    """Return which curve is whose, drawn as in the plot; nothing where there is only one."""
    if len(looks) < 2:
        return Markup("")
    items = []
    for name, look in looks:
        stroke = tag("path", d="M0 5h26" if kind == "line" else "M13 5h0", class_=f"{kind} {look}")
        key = tag("svg", stroke, viewBox="0 0 26 10", aria_hidden="true")
        items.append(tag("li", key, name))
    return tag("ul", *items, class_="legend")


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
