"""The tables of `forebay top` in which one item is chosen: nodes, and requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding
from textual.widgets import DataTable

from forebay.terminal.text import line

if TYPE_CHECKING:
    from collections.abc import Sequence


class ItemTable(DataTable[Text]):
    """Items by name, each a line; the cursor stays on its item while others come and go."""

    BINDINGS: ClassVar[list[Binding]] = [  # type: ignore[assignment] # a list of fewer kinds
        Binding("enter", "app.facts", "details", key_display="Enter"),
        Binding("down,j", "cursor_down", show=False),
        Binding("up,k", "cursor_up", show=False),
        Binding("end,G", "scroll_bottom", show=False),
        Binding("home,g", "scroll_top", show=False),
    ]

    def __init__(self, name: str) -> None:
        super().__init__(id=name, cursor_type="row", cell_padding=0)
        self._head = line()
        self._lines: dict[str, Text] = {}

    @property
    def chosen(self) -> str | None:
        """The name of the item that the cursor is on; None where there is none."""
        return [*self._lines][self.cursor_row] if self._lines else None

    def draw(self, head: Text, lines: Sequence[Text], names: Sequence[str]) -> None:
        """Show these lines; where the names are the same, only lines that differ are drawn."""
        old, chosen = self._lines, self.chosen
        new = dict(zip(names, lines, strict=True))
        if head != self._head or list(new) != list(old):
            scrolled_y = self.scroll_y
            self.clear(columns=True)
            self.add_column(head, width=head.cell_len, key="line")
            for name, text in new.items():
                self.add_row(text, key=name)
            self._head, self._lines = head, new
            if chosen in new:
                self.move_cursor(row=list(new).index(chosen), scroll=False)
            self.scroll_to(y=scrolled_y, animate=False)
        else:
            for name, text in new.items():
                if text != old[name]:
                    self.update_cell(name, "line", text)
            self._lines = new


class NodeTable(ItemTable):
    """The nodes; keys drain and resume the chosen one."""

    BINDINGS: ClassVar[list[Binding]] = [
        Binding("tab", "app.focus_next", "line", key_display="Tab"),
        Binding("d", "app.ask('drain')", "drain"),
        Binding("r", "app.ask('resume')", "resume"),
    ]


class RequestTable(ItemTable):
    """Who runs and who waits; a key cancels the chosen one."""

    BINDINGS: ClassVar[list[Binding]] = [
        Binding("tab", "app.focus_next", "nodes", key_display="Tab"),
        Binding("c", "app.ask('cancel')", "cancel"),
    ]
