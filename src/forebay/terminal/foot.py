"""The last lines of the picture: what was asked or has happened, the keys, and the help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.terminal.amounts import plural
from forebay.terminal.lines import Column, Line, Piece, cells_of, fitted, heading
from forebay.terminal.node_table import detail
from forebay.terminal.view import PANELS

if TYPE_CHECKING:
    from forebay.terminal.pen import Pen
    from forebay.terminal.view import View

HELP = (
    ("q, Ctrl-C", "leave"),
    ("up, down, j, k", "choose a node; so do a click and the wheel"),
    ("d", "drain the chosen node: nothing new starts there"),
    ("r", "resume it: a drained node is used again"),
    ("/", "show only nodes and models with this text; Esc shows all"),
    ("Tab, 1 to 4", "overview, nodes, models and jobs, troubles"),
    ("p, Space", "hold the picture still, and let it go on"),
    ("? or h", "this page; any key leaves it"),
)
SIGNS = ("online", "loading", "draining", "offline")


def message_line(pen: Pen, view: View, cells: int) -> Line:
    """Return what there is to say: a question, trouble with the line, news, or the chosen node."""
    if view.question is not None:
        return fitted(pen, [Piece(f" {_question(pen, view)}", "ask")], cells)
    if view.message:
        style = "alert" if view.message_is_bad else "news"
        return fitted(pen, [Piece(f" {pen.clean(view.message)}", style)], cells)
    if not view.link.is_live and view.link.reason:
        return fitted(pen, [Piece(f" {pen.clean(view.link.reason)}", "alert")], cells)
    node = view.chosen_node()
    return detail(pen, node, cells) if node is not None else fitted(pen, [], cells)


def _question(pen: Pen, view: View) -> str:
    assert view.question is not None
    name = pen.cut(view.question.node, 30)
    if view.question.verb == "resume":
        return f"Resume {name}, so that it is used again?"
    node = view.chosen_node()
    running = plural(node.in_flight if node is not None else 0, "request")
    return f"Drain {name}? Nothing new starts there; {running} may finish."


def key_line(pen: Pen, view: View, cells: int) -> Line:
    """Return the keys that do something now; each can be clicked."""
    if view.question is not None:
        return fitted(pen, _keys([("y", "y", "yes"), ("n", "n", "no")]), cells)
    if view.is_typing:
        typed = [
            Piece(" /", "strong"),
            Piece(view.filter, "strong"),
            Piece(pen.glyphs.cursor, "busy"),
        ]
        hint = "  Enter keeps it, Esc clears it"
        return fitted(pen, [*typed, Piece(hint, "dim")], cells)
    line = _keys(_keys_now(pen, view))
    if cells_of(line) > cells:
        line = _keys([key for key in _keys_now(pen, view) if key[0] not in ("tab", "p", "down")])
    return fitted(pen, line, cells)


def _keys_now(pen: Pen, view: View) -> list[tuple[str, str, str]]:
    """Return each key, how it is written, and what it does."""
    may = view.hello.admin
    acts = [("d", "d", "drain"), ("r", "r", "resume")] if may else [("d", "d r", "for admins only")]
    return [
        ("q", "q", "quit"),
        ("down", pen.glyphs.up_down, "node"),
        *acts,
        ("/", "/", "filter"),
        *([("escape", "Esc", "all")] if view.filter else []),
        ("tab", "Tab", "panel"),
        ("p", "p", "go on" if view.is_paused else "pause"),
        ("?", "?", "help"),
    ]


def _keys(keys: list[tuple[str, str, str]]) -> Line:
    line: Line = []
    for key, written, does in keys:
        target = f"key {key}"
        line += [Piece(" "), Piece(written, "key", target), Piece(f" {does} ", "", target)]
    return line


def tab_line(pen: Pen, view: View, cells: int) -> Line:
    """Return the panels there are, the one that is shown marked."""
    line: Line = []
    for place, name in enumerate(PANELS):
        style = "ask" if place == view.panel else "dim"
        line += [Piece(" "), Piece(f" {place + 1} {name} ", style, f"key {place + 1}")]
    return fitted(pen, line, cells)


def help_lines(pen: Pen, cells: int) -> list[Line]:
    """Return what the keys and signs mean."""
    made: list[Line] = [[], heading(pen, [Column("Keys", cells)], cells)]
    for keys, does in HELP:
        for place, text in enumerate(pen.wrap(does, cells - 17, 3)):
            made.append(
                [Piece(pen.fit(keys if not place else "", 16), "strong"), Piece(f" {text}")]
            )
    made += [[], heading(pen, [Column("Signs", cells)], cells)]
    glyphs = pen.glyphs
    signs = ", ".join(f"{getattr(glyphs, sign)} {sign}" for sign in SIGNS)
    taken, free = pen.slots(1, 3, 3)
    texts = [
        f"Nodes: {signs}. Slots: {taken}{free} one of three is taken.",
        "Model: what the node has in memory, +1 where there is one more. "
        "Fail: how often it has failed. Since: how long it has been in its state.",
        "P50, P90: how long half, and nine in ten, of those who come now wait for a model.",
    ]
    for text in texts:
        made += [[Piece(line)] for line in pen.wrap(text, cells, 4)]
    return [fitted(pen, line, cells) for line in made]
