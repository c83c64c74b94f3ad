"""The screen of `forebay top`: Textual's own widgets, and what the keys do.

Everything is on one screen: what has no room below the rest is scrolled to. Nodes and requests are
tables with a cursor, and the keys act on what is chosen in the one that has the focus.
Colours are the terminal's own sixteen on its own background, so they are readable wherever its
text is; words carry no colour, so nothing is lost without. Only parts that have changed are sent,
at most twice a second unless a key was pressed: a slow line does not fall behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from urllib.parse import quote

from rich.segment import Segment
from rich.text import Text
from textual import work
from textual.app import App
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.filter import LineFilter
from textual.screen import ModalScreen
from textual.widgets import Digits, Footer, Input, Label, Static

from forebay.terminal import panels
from forebay.terminal.feed import GaveUp
from forebay.terminal.item_table import NodeTable, RequestTable
from forebay.terminal.requests_panel import request_facts, requests
from forebay.terminal.text import ENDLESS, clean, to_ascii

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual import events
    from textual.app import ComposeResult
    from textual.color import Color
    from textual.notifications import SeverityLevel

    from forebay.api.events import DashboardSnapshot, Hello
    from forebay.clock import Clock
    from forebay.terminal.feed import Feed
    from forebay.terminal.view import TopView

DRAW_EVERY_S = 0.5
REQUESTS_EVERY_S = 2.0
FIGURES_MAX = 9
TALL_ROWS, BIG_CELLS = 36, 76
"""From which size of the screen on numbers are drawn big, and charts high."""


class Panel(Static):
    """Lines of text that a function makes for the width of the panel and a number of rows."""

    def __init__(self, view: TopView, make: Callable[[TopView, int, int], list[Text]]) -> None:
        super().__init__(id=make.__name__, markup=False)
        self._view = view
        self._make = make
        self._lines: list[Text] = []

    def draw(self, rows: int) -> None:
        """Make the lines anew; equal ones are not sent again."""
        lines = self._make(self._view, self.size.width, rows)
        if lines != self._lines:
            self._lines = lines
            self.styles.height = len(lines)  # known, so that nothing is wrapped to find out
            self.set_class(bool(lines), "-shown")
            self.update(Text("\n", no_wrap=True).join(lines))


class Dialog(ModalScreen[bool]):
    """A text in front of the view that any key ends; the result is whether it was y."""

    def __init__(self, lines: list[Text]) -> None:
        super().__init__()
        self._text = Text("\n").join(lines)

    def compose(self) -> ComposeResult:
        yield Static(self._text, markup=False)

    def on_key(self, event: events.Key) -> None:
        event.stop()
        self.dismiss(event.key in ("y", "Y"))

    def on_click(self) -> None:
        self.dismiss(False)


class AsciiFilter(LineFilter):
    """Draws with ASCII only, as where there is no UTF-8."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]


class TopApp(App[int]):
    """`forebay top` while it runs; returns the exit status, unless `problem` says what ended it."""

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    HORIZONTAL_BREAKPOINTS: list[tuple[int, str]] | None = [  # noqa: RUF012 # as in Textual
        (0, "-small"), (60, "-narrow"), (76, "-normal"), (110, "-wide"),
    ]  # fmt: skip
    VERTICAL_BREAKPOINTS: list[tuple[int, str]] | None = [  # noqa: RUF012 # as in Textual
        (0, "-low"), (24, "-usual"),
    ]  # fmt: skip
    CSS = """
    Screen { overflow: hidden; }
    #body { height: 1fr; overflow-y: scroll; display: none; }
    #body, ItemTable {
        scrollbar-size-vertical: 1;
        scrollbar-background: ansi_default;
        scrollbar-background-hover: ansi_default;
        scrollbar-background-active: ansi_default;
    }
    ItemTable { background: ansi_default; background-tint: transparent; overflow-x: hidden; }
    ItemTable > .datatable--header { background: ansi_default; text-style: none; }
    ItemTable > .datatable--cursor { background: ansi_default; color: ansi_default; }
    ItemTable > .datatable--cursor { text-style: bold; }
    ItemTable:focus > .datatable--cursor { text-style: reverse; }
    #body > *, #requests { margin-top: 1; }
    .-low #body > *, #caption, #figures, #digits { margin-top: 0; }
    Panel { height: 1; text-wrap: nowrap; }
    #body > Panel { display: none; }
    #body > Panel.-shown { display: block; }
    #body.-lost { text-style: dim; }
    #digits { height: auto; }
    Digits { padding-left: 1; text-style: bold; width: 1fr; }
    Digits.-bad { color: ansi_red; }
    #queue, #side { height: auto; }
    #queue_bars { width: 3fr; min-width: 24; max-width: 50; margin-right: 2; }
    #queue_chart { width: 5fr; }
    #nodes, #requests { max-height: 40%; }
    #models { width: 28fr; }
    #jobs { width: 28; margin: 0 2; }
    #problems { width: 20fr; }
    .-wide #jobs { width: 28fr; }
    .-narrow #problems { display: none; }
    .-small #side { layout: vertical; }
    .-small #side Panel { width: 100%; margin: 0; }
    Dialog { align: center middle; }
    Dialog Static { width: 78; max-width: 100%; height: auto; border: round ansi_default; }
    Toast { width: auto; max-width: 100%; padding: 0 1; background: ansi_default; }
    Footer, FooterKey { background: ansi_default; }
    FooterKey .footer-key--key { color: ansi_default; background: ansi_default; }
    FooterKey .footer-key--key { text-style: reverse; }
    #typing { height: 1; display: none; }
    #typing Input { width: 1fr; }
    #typing Label { padding: 0 1; text-style: dim; }
    """
    BINDINGS: ClassVar[list[Binding]] = [  # type: ignore[assignment] # a list of fewer kinds
        Binding("ctrl+c", "leave(130)", show=False, priority=True),
        Binding("ctrl+q", "leave(0)", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
        Binding("q", "quit", "quit"),
        Binding("question_mark,h,f1", "help", "help", key_display="?"),
        Binding("slash", "type", "filter", key_display="/", priority=True),
        Binding("escape", "show_all", "all", key_display="Esc"),
        Binding("p,space", "pause(True)", "pause"),
        Binding("p,space", "pause(False)", "go on"),
    ]

    def __init__(self, feed: Feed, view: TopView, clock: Clock, *, is_ascii: bool = False) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.view = view
        self.problem: GaveUp | None = None
        self._feed = feed
        self._clock = clock
        self._ascii = AsciiFilter(enabled=is_ascii)
        self._is_stale = True
        self._panels: list[Panel] = []
        self._digits = [Digits() for _ in range(FIGURES_MAX)]
        self._filter = Input(compact=True, max_length=100)
        self.nodes = NodeTable("nodes")
        self.requests = RequestTable("requests")
        self._tick()

    def compose(self) -> ComposeResult:
        def panel(make: Callable[[TopView, int, int], list[Text]]) -> Panel:
            return Panel(self.view, make)

        yield panel(panels.header)
        with VerticalScroll(id="body", can_focus=False) as self._body:
            yield panel(panels.caption)
            yield Horizontal(*self._digits, id="digits")
            yield panel(panels.figures)
            yield Horizontal(*map(panel, (panels.queue_bars, panels.queue_chart)), id="queue")
            yield panel(panels.fleet)
            yield self.nodes
            yield Horizontal(*map(panel, (panels.models, panels.jobs, panels.problems)), id="side")
            yield panel(panels.troubles)
            yield self.requests
            yield panel(panels.remedies)
        with Horizontal(id="typing") as self._typing:
            yield Label("/")
            yield self._filter
            yield Label("Enter keeps it, Esc clears it")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._panels = list(self.query(Panel))
        self.set_interval(DRAW_EVERY_S, self._draw_in_turn)
        self.set_interval(REQUESTS_EVERY_S, self._ask_for_requests)
        self._read()
        # after Ctrl-Z and `fg` the terminal has forgotten everything
        self.app_resume_signal.subscribe(self, lambda _: self.call_later(self._send_all))

    async def on_unmount(self) -> None:
        await self._feed.close()

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *([self._ascii] if self._ascii.enabled else [])]

    # -- what comes from the gateway

    @work
    async def _read(self) -> None:
        try:
            await self._feed.run(self)
        except GaveUp as problem:
            self.problem = problem
            self.exit()

    def take_hello(self, hello: Hello) -> None:
        self._tick()
        if change := self.view.take_hello(hello):
            self._say(change)
        self._is_stale = True

    def take_snapshot(self, snapshot: DashboardSnapshot) -> None:
        """Take the next snapshot; the first is drawn at once."""
        is_first = not self.view.has_snapshot
        self.view.take_snapshot(snapshot)
        self._is_stale = True
        if is_first:
            self.draw()

    def lose(self, reason: str) -> None:
        self._tick()
        self.view.lose(reason[:1].upper() + reason[1:])
        self._is_stale = True

    def _ask_for_requests(self) -> None:
        """Have the requests fetched, while they are looked at; one question at a time."""
        if self.view.is_live and self.requests.is_on_screen:
            self._fetch_requests()

    @work(exclusive=True, group="requests")
    async def _fetch_requests(self) -> None:
        await self.view.fetch_requests(self._feed)
        self._is_stale = True

    # -- drawing

    def _tick(self) -> None:
        self.view.now = self._clock.utc().astimezone()
        self.view.now_s = self._clock.monotonic_s()

    def _draw_in_turn(self) -> None:
        shown = self.view.now
        self._tick()
        if self._is_stale or f"{shown:%S}" != f"{self.view.now:%S}":
            self.draw()

    def _send_all(self) -> None:
        self.screen.refresh(layout=True)

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Show the view as it is now."""
        self._is_stale = False
        view = self.view
        self._body.set_class(not view.is_live, "-lost")
        if view.has_snapshot and not self._body.display:
            self._body.display = True
            self.screen.set_focus(self.nodes)
        cells, rows = self.size
        is_tall = rows >= TALL_ROWS and cells >= BIG_CELLS
        has_digits = is_tall and not self._ascii.enabled
        rows_of = {
            "figures": 1 if has_digits else 2,
            "queue_bars": 12 if is_tall else 4,
            "queue_chart": 12 if is_tall else 4,
        }
        for panel in self._panels:
            panel.draw(rows_of.get(panel.id or "", rows // 4))
        cells = self.nodes.scrollable_content_region.width
        head, *lines = panels.nodes(view, cells, ENDLESS)
        self.nodes.draw(head, lines, [node.name for node in view.nodes()])
        cells = self.requests.scrollable_content_region.width
        head, *lines = requests(view, cells, ENDLESS)
        self.requests.draw(head, lines, [one.id for one in view.shown_requests()])
        shown = panels.figures_for(view, self._body.size.width) if has_digits else []
        for place, digits in enumerate(self._digits):
            digits.display = place < len(shown)
            if digits.display:
                digits.set_class(shown[place].is_bad, "-bad")
                digits.update(shown[place].value)
        self.refresh_bindings()

    # -- keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key does something now; the last line has those that do."""
        if self._filter.has_focus:
            return action in ("leave", "show_all")
        if action == "type":  # its key is looked at before a dialog gets it
            return not self.screen.is_modal
        if action == "show_all":
            return bool(self.view.filter)
        return action != "pause" or parameters != (self.view.is_paused,)

    def action_leave(self, status: int) -> None:
        self.exit(status)

    def action_pause(self, on: bool) -> None:
        self.view.is_paused = on
        self.draw()

    def action_help(self) -> None:
        self.push_screen(Dialog(panels.help_page(min(78, self.size.width) - 2)))

    def action_facts(self) -> None:
        """Show all that is known of the node, or the request, that is chosen."""
        cells = min(78, self.size.width) - 2
        if self.requests.has_focus:
            found = request_facts(self.view, self.requests.chosen, cells)
        else:
            found = panels.node_facts(self.view, self.nodes.chosen, cells)
        if found:
            self.push_screen(Dialog(found))

    def action_type(self) -> None:
        """Have the next key go to the filter, also where both have come in one read."""
        self._typing.display = True
        self.screen.set_focus(self._filter)

    def action_show_all(self) -> None:
        self._filter.value = ""
        self.nodes.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.view.filter = event.value
        self.draw()

    def on_input_submitted(self) -> None:
        self.nodes.focus()

    def on_input_blurred(self) -> None:
        self._typing.display = False

    # -- draining, resuming and cancelling

    @work
    async def action_ask(self, verb: str) -> None:
        """Ask whether to do something to what is chosen, and have it done."""
        view = self.view
        chosen = self.requests.chosen if verb == "cancel" else self.nodes.chosen
        problem = view.problem_with(verb, chosen)
        if problem or chosen is None:
            self._say(problem, "warning")
        elif not await self.push_screen_wait(Dialog(panels.question(view, verb, chosen))):
            self._say("Nothing was done.")
        elif verb == "cancel":
            await self._order(chosen, f"/v1/queue/{quote(chosen)}", "DELETE")
            self._fetch_requests()
        else:
            await self._order(chosen, f"/admin/nodes/{quote(chosen, safe='')}/{verb}")

    def _say(self, text: str, severity: SeverityLevel = "information") -> None:
        self.notify(clean(text), severity=severity, markup=False)

    async def _order(self, name: str, path: str, method: str = "POST") -> None:
        try:
            answer = await self._feed.tell(path, method)
        except GaveUp as problem:
            self._say(f"{name} was not changed: {problem}", "error")
        else:
            self._say(panels.answer(name, answer))
