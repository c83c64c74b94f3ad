"""The screen: lines of a picture under Textual, keys and clicks handed to the view.

Colours are the terminal's own sixteen on its own background, so they are readable wherever its
text is; words carry no colour, so nothing is lost without. Only cells that have changed are sent,
at most twice a second unless a key was pressed: a slow line does not fall behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from urllib.parse import quote

from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.binding import Binding
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from forebay.terminal.feed import GaveUp
from forebay.terminal.lines import text_of
from forebay.terminal.picture import draw

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult

    from forebay.clock import Clock
    from forebay.terminal.feed import Feed
    from forebay.terminal.lines import Line
    from forebay.terminal.pen import Pen
    from forebay.terminal.values import Hello, Snapshot
    from forebay.terminal.view import Order, View

DRAW_EVERY_S = 0.5
STYLES = {
    "": Style(),
    "title": Style(bold=True, underline=True),
    "head": Style(dim=True, underline=True),
    "big": Style(bold=True),
    "strong": Style(bold=True),
    "dim": Style(dim=True),
    "good": Style(color="green"),
    "busy": Style(color="cyan"),
    "warn": Style(color="yellow"),
    "bad": Style(color="red", bold=True),
    "key": Style(reverse=True),
    "ask": Style(reverse=True, bold=True),
    "alert": Style(color="red", bold=True),
    "news": Style(bold=True),
}


class PictureWidget(Widget):
    """The picture, line by line."""

    DEFAULT_CSS = "PictureWidget { width: 100%; height: 100%; }"

    def __init__(self, pen: Pen, view: View) -> None:
        super().__init__()
        self._pen = pen
        self._view = view
        self.lines: list[Line] = []

    def redraw(self) -> None:
        """Draw anew and have what differs sent."""
        before, size = self.lines, self.size
        self.lines = draw(self._pen, self._view, size.width, size.height)
        if len(before) != len(self.lines):
            self.refresh()
            return
        changed = [
            region
            for y, (old, new) in enumerate(zip(before, self.lines, strict=True))
            if (region := _changed(y, old, new, size.width)) is not None
        ]
        if changed:
            self.refresh(*changed)

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.lines = []
        self.redraw()

    def render_line(self, y: int) -> Strip:
        """Return one line as Textual wants it."""
        line = self.lines[y] if y < len(self.lines) else []
        return Strip([Segment(piece.text, STYLES[piece.style]) for piece in line])

    def target_at(self, x: int, y: int) -> str:
        """Return what a click there means."""
        for piece in self.lines[y] if 0 <= y < len(self.lines) else []:
            x -= Segment(piece.text).cell_length
            if x < 0:
                return piece.target
        return ""


def _changed(y: int, old: Line, new: Line, cells: int) -> Region | None:
    """Return which part of a line differs, between the pieces that are the same on both sides."""
    if old == new:
        return None
    alike = 0
    while alike < min(len(old), len(new)) and old[alike] == new[alike]:
        alike += 1
    first = sum(Segment(piece.text).cell_length for piece in new[:alike])
    last = 0
    while last < min(len(old), len(new)) - alike and old[-1 - last] == new[-1 - last]:
        last += 1
    end = cells - sum(Segment(piece.text).cell_length for piece in new[len(new) - last :])
    return Region(first, y, max(1, end - first), 1)


class TopApp(App[int]):
    """`forebay top` while it runs; returns the exit status, unless `problem` says what ended it."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "Screen { background: ansi_default; overflow: hidden; }"
    BINDINGS: ClassVar[list[Binding]] = [  # type: ignore[assignment] # a list of fewer kinds
        Binding("ctrl+c", "interrupt", "", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "", show=False, priority=True),
        Binding("tab", "tab", "", show=False, priority=True),
        Binding("shift+tab", "tab(-1)", "", show=False, priority=True),
    ]

    def __init__(self, feed: Feed, view: View, pen: Pen, clock: Clock) -> None:
        super().__init__()
        self.theme = "ansi-dark"
        self._feed = feed
        self._clock = clock
        self.view = view
        self.picture = PictureWidget(pen, view)
        self.problem: GaveUp | None = None
        self._is_stale = True
        self._tick()

    def compose(self) -> ComposeResult:
        """Put the picture on the screen."""
        yield self.picture

    def on_mount(self) -> None:
        """Begin to read and to draw."""
        self.set_interval(DRAW_EVERY_S, self._draw_in_turn)
        self.run_worker(self._read(), exit_on_error=True)
        self.app_resume_signal.subscribe(self, self._on_resume)

    async def on_unmount(self) -> None:
        """End the connections."""
        await self._feed.close()

    def screen_text(self) -> str:
        """Return what is on the screen, without its styles."""
        return "\n".join(text_of(line).rstrip() for line in self.picture.lines)

    # -- what comes from the gateway

    async def _read(self) -> None:
        try:
            await self._feed.run(self)
        except GaveUp as problem:
            self.problem = problem
            self.exit()

    def take_hello(self, hello: Hello) -> None:
        """Begin anew with what a connection says first."""
        self._tick()
        self.view.take_hello(hello)
        self._is_stale = True

    def take_snapshot(self, snapshot: Snapshot) -> None:
        """Take the next picture; the first is drawn at once."""
        is_first = self.view.snapshot is None
        self.view.take_snapshot(snapshot)
        self._is_stale = True
        if is_first:
            self._draw()

    def lose(self, reason: str) -> None:
        """Note that the connection is lost."""
        self._tick()
        self.view.lose(reason[:1].upper() + reason[1:])
        self._is_stale = True

    # -- drawing

    def _tick(self) -> None:
        self.view.now = self._clock.utc().astimezone()
        self.view.now_s = self._clock.monotonic_s()

    def _draw_in_turn(self) -> None:
        second = self.view.now.replace(microsecond=0)
        self._tick()
        if self._is_stale or self.view.now.replace(microsecond=0) != second:
            self._draw()

    def _on_resume(self, _: App[int]) -> None:
        """Send everything after Ctrl-Z and `fg`: the terminal has forgotten it."""
        self.call_later(self.screen.refresh, layout=True)

    def _draw(self) -> None:
        self._is_stale = False
        self.picture.redraw()

    # -- keys, clicks and the wheel

    def press(self, key: str, letter: str | None = None) -> None:
        """Do what a key means."""
        order = self.view.press(key, letter)
        if order is not None:
            self._obey(order)
        self._draw()

    def on_key(self, event: events.Key) -> None:
        """Take a key."""
        event.stop()
        self.press(event.key, event.character if event.is_printable else None)

    def on_paste(self, event: events.Paste) -> None:
        """Take pasted text."""
        self.view.paste(event.text)
        self._draw()

    def on_click(self, event: events.Click) -> None:
        """Choose the node, or do what the key means, that was clicked."""
        kind, _, what = self.picture.target_at(event.screen_x, event.screen_y).partition(" ")
        if kind == "node":
            self.view.choose(what)
            self._draw()
        elif kind == "key":
            self.press(what)

    def on_mouse_scroll_down(self) -> None:
        """Choose the next node."""
        self.press("down")

    def on_mouse_scroll_up(self) -> None:
        """Choose the node before."""
        self.press("up")

    def action_interrupt(self) -> None:
        """Leave, as Ctrl-C does everywhere."""
        self.press("ctrl+c")

    def action_tab(self, by: int = 1) -> None:
        """Show another panel; without this the key would look for a field to go to."""
        self.press("tab" if by > 0 else "shift+tab")

    # -- what is done outside

    def _obey(self, order: Order) -> None:
        if order.verb in ("quit", "interrupt"):
            self.exit(130 if order.verb == "interrupt" else 0)
            return
        self.view.say(f"Asking the gateway to {order.verb} {order.node}...")
        self.run_worker(self._tell(order), exit_on_error=True)

    async def _tell(self, order: Order) -> None:
        try:
            node = await self._feed.tell(f"/admin/nodes/{quote(order.node, safe='')}/{order.verb}")
        except GaveUp as problem:
            self.view.say(f"{order.node} was not changed: {problem}", is_bad=True)
        else:
            self.view.say(_done(order, node))
        self._draw()


def _done(order: Order, node: dict[str, object]) -> str:
    if order.verb == "resume":
        return f"{order.node} is used again; it is {node.get('state', 'there')}."
    running = node.get("in_flight")
    left = f" {running} still run there." if running else ""
    return f"{order.node} is draining: nothing new starts there.{left} r resumes it."
