"""The nodes: a table that shows what the width allows, and all that is known of the chosen one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from forebay.terminal.amounts import brief, counted, memory, plural, share
from forebay.terminal.lines import Column, Line, Piece, fitted, heading, restyled, table_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.terminal.pen import Pen
    from forebay.terminal.values import Node
    from forebay.terminal.view import View

MARK_CELLS = 2
STYLES = {"online": "good", "loading": "busy", "draining": "warn", "offline": "bad"}
SLOT_GLYPHS = 6


class _Field(NamedTuple):
    """A column that there may be."""

    head: str
    cells: int
    cells_max: int
    rank: int
    """Where the width is short, the highest goes first; 9 comes only where there is much."""
    drawn: Callable[[Pen, Node], Line]
    right: bool = False


def node_lines(pen: Pen, view: View, cells: int, rows: int) -> list[Line]:
    """Return the heading and at most so many nodes, the chosen one among them."""
    assert view.snapshot is not None
    nodes = view.nodes()
    fields = _fields_for(cells - MARK_CELLS)
    shown = _window(nodes, view.chosen_node(), rows)
    title = _title(view, nodes, shown)
    columns = [Column(field.head, field.cells, field.right) for field in fields]
    columns[0] = Column(title, columns[0].cells + MARK_CELLS)
    made = [heading(pen, columns, cells)]
    if not nodes:
        made.append(fitted(pen, [Piece(f"  {_nothing(view)}", "dim")], cells))
    chosen = None if view.is_still else view.chosen_node()
    for node in shown:
        is_chosen = node is chosen
        mark = Piece(f"{pen.glyphs.chosen if is_chosen else ' '} ", "busy")
        plain = [Column(field.head, field.cells, field.right) for field in fields]
        row = table_row(pen, plain, [field.drawn(pen, node) for field in fields])
        line = fitted(pen, [mark, *row], cells)
        made.append([piece._replace(target=f"node {node.name}") for piece in line])
        if is_chosen:
            made[-1] = [_strong(piece) for piece in made[-1]]
    return made


def _strong(piece: Piece) -> Piece:
    return piece._replace(style="strong") if not piece.style else piece


def _title(view: View, nodes: list[Node], shown: list[Node]) -> str:
    assert view.snapshot is not None
    if view.filter:
        return f"Nodes {len(nodes)}/{len(view.snapshot.nodes)}"
    if len(shown) < len(nodes) and shown:
        first = nodes.index(shown[0]) + 1
        return f"Nodes {first}-{first + len(shown) - 1}/{len(nodes)}"
    return f"Nodes {len(nodes)}"


def _nothing(view: View) -> str:
    assert view.snapshot is not None
    if view.snapshot.nodes:
        return f"No node matches /{view.filter}; Esc shows all."
    return "There are no nodes. Add one with: forebay nodes add URL"


def _window(nodes: list[Node], chosen: Node | None, rows: int) -> list[Node]:
    """Return as many nodes as there are rows, the chosen one among them, by whole pages."""
    if len(nodes) <= rows or rows <= 0:
        return nodes[: max(0, rows)]
    place = next((place for place, node in enumerate(nodes) if node is chosen), 0)
    first = min(place // rows * rows, len(nodes) - rows)
    return nodes[first : first + rows]


# -- columns


def _fields_for(cells: int) -> list[_Field]:
    """Return the columns that fit, stretched to fill the width."""
    fields = [field for field in FIELDS if field.rank < 9]
    while len(fields) > 2 and _width(fields) > cells:
        fields.remove(max(fields, key=lambda field: field.rank))
    for extra in (field for field in FIELDS if field.rank >= 9):
        wanted = [field for field in FIELDS if field in fields or field is extra]
        if len(fields) >= len(FIELDS) - 3 and _width(wanted) + 12 <= cells:
            fields = wanted
    spare = cells - _width(fields)
    stretched = []
    for field in fields:
        more = max(0, min(spare, field.cells_max - field.cells))
        spare -= more
        stretched.append(field._replace(cells=field.cells + more))
    if spare < 0:
        stretched[0] = stretched[0]._replace(cells=max(1, stretched[0].cells + spare))
    return stretched


def _width(fields: list[_Field]) -> int:
    return sum(field.cells for field in fields) + len(fields) - 1


def _name(pen: Pen, node: Node) -> Line:
    return [Piece(pen.clean(node.name))]


def state_pieces(pen: Pen, node: Node) -> Line:
    """Return a state as a symbol, coloured, and a word."""
    known = node.state in STYLES
    symbol = getattr(pen.glyphs, node.state) if known else pen.glyphs.unknown
    return [Piece(symbol, STYLES.get(node.state, "warn")), Piece(f" {pen.clean(node.state)}")]


def _slots(pen: Pen, node: Node) -> Line:
    taken, free = pen.slots(node.in_flight, node.slots, SLOT_GLYPHS)
    blank = " " * (SLOT_GLYPHS - len(taken) - len(free))
    numbers = f" {counted(node.in_flight)}/{counted(node.slots)}"
    return [Piece(taken, "busy"), Piece(free, "dim"), Piece(blank), Piece(numbers)]


def _model(pen: Pen, node: Node) -> Line:
    names = node.models if node.loaded is None else node.loaded
    count = max(node.models_total, len(names)) if node.loaded is None else len(names)
    if not names:
        return [Piece(pen.glyphs.none, "dim")]
    flaw = [Piece(f"{pen.glyphs.warning} ", "warn")] if node.failing else []
    more = f" +{count - 1}" if count > 1 else ""
    return [*flaw, Piece(pen.clean(names[0])), Piece(more, "dim")]


def _failures(pen: Pen, node: Node) -> Line:
    count = sum(node.failures.values())
    return [Piece(counted(count), "strong")] if count else [Piece(pen.glyphs.none, "dim")]


def _known(text: str, pen: Pen) -> Line:
    return [Piece(text)] if text != "-" else [Piece(pen.glyphs.none, "dim")]


FIELDS = (
    _Field("Nodes", 12, 28, 0, _name),
    _Field("Kind", 9, 10, 9, lambda pen, node: [Piece(pen.clean(node.kind or ""))]),
    _Field("State", 10, 10, 1, state_pieces),
    _Field("Slots", 12, 13, 2, _slots),
    _Field("Model", 15, 34, 3, _model),
    _Field("GPU", 4, 5, 4, lambda pen, node: _known(share(node.gpu_load), pen), True),
    _Field(
        "VRAM", 7, 9, 5,
        lambda pen, node: _known(memory(node.vram_used_bytes, node.vram_total_bytes), pen), True,
    ),
    _Field("Fail", 4, 5, 6, _failures, True),
    _Field("Since", 6, 7, 7, lambda pen, node: _known(brief(node.state_seconds), pen), True),
    _Field("Last error", 24, 200, 10, lambda pen, node: [Piece(pen.clean(node.last_error or ""))]),
)  # fmt: skip


# -- one node


def detail(pen: Pen, node: Node, cells: int) -> Line:
    """Return the chosen node in one line."""
    said = [pen.clean(node.kind or "kind unknown"), *_marks(node)]
    said.append(f"in this state for {brief(node.state_seconds)}")
    if node.last_error:
        said.append(f"last error: {pen.clean(node.last_error)}")
    elif node.models:
        said.append(f"{plural(node.models_total, 'model')}: {pen.clean(', '.join(node.models))}")
    text = f": {', '.join(said)}"
    return fitted(pen, [Piece(f" {pen.clean(node.name)}", "strong"), Piece(text, "dim")], cells)


def _marks(node: Node) -> list[str]:
    """Return what is out of the ordinary about a node, or about what stands before it."""
    return [*(["simulated"] if node.simulated else []), *(["guarded"] if node.guarded else [])]


def detail_lines(pen: Pen, node: Node, cells: int, rows: int) -> list[Line]:
    """Return all that is known of a node."""
    failures = ", ".join(f"{kind} {counted(count)}" for kind, count in node.failures.items())
    facts = [
        ("Kind", ", ".join([node.kind or "not known yet", *_marks(node)])),
        ("State", f"{node.state} for {brief(node.state_seconds)}"),
        ("Models", f"{node.models_total}: {', '.join(node.models)}" if node.models else "none"),
        ("In memory", "all of them" if node.loaded is None else ", ".join(node.loaded) or "none"),
        ("Failing", ", ".join(node.failing) or "none"),
        ("Failures", failures or "none"),
        ("Last error", node.last_error or "none"),
    ]
    made = [heading(pen, [Column(f"Node {pen.clean(node.name)}", cells)], cells)]
    for name, fact in facts:
        for place, text in enumerate(pen.wrap(fact, cells - 12, 3) or [""]):
            label = Piece(pen.fit(name if not place else "", 11), "dim")
            made.append(fitted(pen, [label, Piece(" "), Piece(text)], cells))
    return made[: max(0, rows)]


def faded(lines: list[Line]) -> list[Line]:
    """Return lines as what is no longer new."""
    return [restyled(line, "dim") for line in lines]
