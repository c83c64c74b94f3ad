"""The screen of `forebay top`: the panels under Textual, and what the keys do.

Colours are the terminal's own sixteen on its own background, so they are readable wherever its
text is; words carry no colour, so nothing is lost without. Only lines that have changed are sent,
at most twice a second unless a key was pressed: a slow line does not fall behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from rich.segment import Segment
from textual.app import App
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.filter import LineFilter
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Digits, Footer, Input, Label

from forebay.terminal import panels
from forebay.terminal.feed import GaveUp
from forebay.terminal.requests_panel import requests
from forebay.terminal.text import DIM, line, to_ascii
from forebay.terminal.view import LINE_TAB

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.text import Text
    from textual import events
    from textual.app import ComposeResult
    from textual.color import Color

    from forebay.clock import Clock
    from forebay.sdk.status import LiveHello, LiveSnapshot
    from forebay.terminal.feed import Feed
    from forebay.terminal.view import TopView

DRAW_EVERY_S = 0.5
REQUESTS_EVERY_S = 2.0
FIGURES_MAX = 9
OTHER_ROWS = 3
"""The first line, the message and the keys."""


class TextPanel(Widget):
    """Lines of text that a function makes for the size of the widget.

    Neither Static nor DataTable: they send all of themselves for one letter that has changed, and
    draw it through Rich, which takes several times as long for a table of fifty nodes.
    """

    def __init__(
        self, view: TopView, make: Callable[[TopView, int, int], list[Text]], *, fades: bool = True
    ) -> None:
        super().__init__(id=make.__name__)
        self._view = view
        self._make = make
        self._fades = fades
        self._lines: list[Text] = []

    def draw(self) -> None:
        """Make the lines anew and have those sent that differ."""
        old, new = self._lines, self._make(self._view, *self.size)
        if self._fades and not self._view.is_live:
            new = [line((text.plain, DIM)) for text in new]
        self._lines = new
        changed = [y for y in range(max(len(old), len(new))) if old[y : y + 1] != new[y : y + 1]]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def on_resize(self) -> None:
        self.draw()

    def on_show(self) -> None:
        self.draw()

    def render_line(self, y: int) -> Strip:
        found = self._lines[y] if y < len(self._lines) else line()
        return Strip(found.render(self.app.console)).adjust_cell_length(self.size.width)


class AsciiFilter(LineFilter):
    """Draws with ASCII only, as where there is no UTF-8."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]


class TopScreen(Screen[None], inherit_bindings=False):
    """A screen on which Tab does not look for a field to go to."""


class TopApp(App[int]):
    """`forebay top` while it runs; returns the exit status, unless `problem` says what ended it."""

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    AUTO_FOCUS: ClassVar[str | None] = None
    HORIZONTAL_BREAKPOINTS: list[tuple[int, str]] | None = [  # noqa: RUF012 # as in Textual
        (0, "-tiny"), (50, "-small"), (60, "-narrow"), (76, "-normal"), (110, "-wide"),
    ]  # fmt: skip
    CSS = """
    Screen, #body { overflow: hidden; background: ansi_default; }
    #body { height: 1fr; }
    #body > * { display: none; }
    TextPanel { height: 1; }
    Digits { padding-left: 1; text-style: bold; }
    Digits.-bad { color: ansi_red; }
    .-lost Digits { color: ansi_default; text-style: dim; }
    .-airy .gap { margin-top: 1; }
    .beside TextPanel { height: 1fr; margin-left: 2; }
    .beside TextPanel:first-child { margin-left: 0; }
    #queue_bars { width: 3fr; min-width: 24; max-width: 50; }
    #queue_chart { width: 5fr; }
    #models { width: 28fr; }
    #jobs { width: 28; }
    #problems { width: 20fr; }
    .-wide #jobs, .-half #jobs { width: 28fr; }
    .-tiny #queue_chart, .-half #problems { display: none; }
    .-tiny, .-small, .-narrow { #problems { display: none; } }
    .-tiny, .-small {
        #jobs { display: none; }
        .-half #side { layout: vertical; }
        .-half #models { width: 100%; }
        .-half #jobs { display: block; width: 100%; margin: 1 0; }
    }
    Footer, FooterKey { background: ansi_default; }
    FooterKey .footer-key--key { color: ansi_default; background: ansi_default; }
    FooterKey .footer-key--key { text-style: reverse; }
    #typing { height: 1; dock: bottom; display: none; }
    #typing Input { width: 1fr; }
    #typing Label { padding: 0 1; text-style: dim; }
    """
    BINDINGS: ClassVar[list[Binding]] = [  # type: ignore[assignment] # a list of fewer kinds
        Binding("ctrl+c", "leave(130)", show=False, priority=True),
        Binding("ctrl+q", "leave(0)", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
        Binding("y", "answer(True)", "yes"),
        Binding("n", "answer(False)", "no"),
        Binding("q", "quit", "quit"),
        Binding("question_mark,h,f1", "set('is_helping', True)", "help", key_display="?"),
        Binding("down,j", "move(1)", "choose", key_display="↑↓"),
        Binding("up,k", "move(-1)", show=False),
        Binding("pagedown", "move(10)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("end,G", "move(1000000)", show=False),
        Binding("home,g", "move(-1000000)", show=False),
        Binding("d", "ask('drain')", "drain"),
        Binding("r", "ask('resume')", "resume"),
        Binding("c", "ask('cancel')", "cancel"),
        Binding("d,r", "ask('')", "for admins only", key_display="d r"),
        Binding("slash", "type", "filter", key_display="/", priority=True),  # before what follows
        Binding("escape", "show_all", "all", key_display="Esc"),
        Binding("tab", "turn(1)", "panel", key_display="Tab"),
        Binding("shift+tab", "turn(-1)", show=False),
        *(Binding(str(tab + 1), f"set('tab', {tab})", show=False) for tab in range(5)),
        Binding("p,space", "set('is_paused', True)", "pause"),
        Binding("p,space", "set('is_paused', False)", "go on"),
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
        self._keys: object = None
        """What it depended on which keys do something when the last line was made."""
        self._digits = [Digits() for _ in range(FIGURES_MAX)]
        self._filter = Input(compact=True, max_length=100)
        self._panels: list[TextPanel] = []
        self._tick()

    def get_default_screen(self) -> TopScreen:
        return TopScreen()

    def compose(self) -> ComposeResult:
        def panel(make: Callable[[TopView, int, int], list[Text]]) -> TextPanel:
            return TextPanel(self.view, make)

        yield TextPanel(self.view, panels.header, fades=False)
        with Vertical(id="body") as self._body:
            yield from map(panel, (panels.help_page, panels.tabs, panels.caption))
            yield Horizontal(*self._digits, id="digits")
            yield panel(panels.figures)
            with Horizontal(id="queue", classes="gap beside"):
                yield from map(panel, (panels.queue_bars, panels.queue_chart))
            for make in (panels.fleet, panels.nodes, panels.node_facts):
                yield panel(make).add_class("gap")
            with Horizontal(id="side", classes="gap beside"):
                yield from map(panel, (panels.models, panels.jobs, panels.problems))
            for make in (panels.troubles, panels.remedies, requests):
                yield panel(make).add_class("gap")
        yield TextPanel(self.view, panels.message, fades=False)
        with Horizontal(id="typing"):
            yield Label("/")
            yield self._filter
            yield Label("Enter keeps it, Esc clears it")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._panels = list(self.query(TextPanel))
        self.set_interval(DRAW_EVERY_S, self._draw_in_turn)
        self.set_interval(REQUESTS_EVERY_S, self._ask_for_requests)
        self.run_worker(self._read(), exit_on_error=True)
        # after Ctrl-Z and `fg` the terminal has forgotten everything
        self.app_resume_signal.subscribe(self, lambda _: self.call_later(self._send_all))

    async def on_unmount(self) -> None:
        await self._feed.close()

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), *([self._ascii] if self._ascii.enabled else [])]

    # -- what comes from the gateway

    async def _read(self) -> None:
        try:
            await self._feed.run(self)
        except GaveUp as problem:
            self.problem = problem
            self.exit()

    def take_hello(self, hello: LiveHello) -> None:
        self._tick()
        self.view.take_hello(hello)
        self._is_stale = True

    def take_snapshot(self, snapshot: LiveSnapshot) -> None:
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
        if self.view.tab == LINE_TAB and self.view.is_live:
            self.run_worker(self._fetch_requests(), group="requests", exclusive=True)

    async def _fetch_requests(self) -> None:
        try:
            self.view.take_requests(await self._feed.requests())
        except GaveUp as problem:
            self.view.take_requests([], str(problem))
        self._is_stale = True

    # -- drawing

    def _tick(self) -> None:
        self.view.now = self._clock.utc().astimezone()
        self.view.now_s = self._clock.monotonic_s()

    def _draw_in_turn(self) -> None:
        second = self.view.now.replace(microsecond=0)
        self._tick()
        if self._is_stale or self.view.now.replace(microsecond=0) != second:
            self.draw()

    def _send_all(self) -> None:
        self.screen.refresh(layout=True)

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Show the view as it is now."""
        self._is_stale = False
        view = self.view
        if view.has_snapshot:
            self._place()
        for panel in self._panels:
            if panel.is_on_screen:
                panel.draw()
        keys = (bool(view.question), view.is_paused, bool(view.filter), view.hello.admin, view.tab)
        if keys != self._keys:
            self._keys = keys
            self.refresh_bindings()

    def _place(self) -> None:
        cells, rows = self.size
        body = self._body
        may_be_big = not self._ascii.enabled
        planned = panels.plan(self.view, cells, rows - OTHER_ROWS, may_be_big=may_be_big)
        body.set_class(self.view.tab == 2, "-half")
        body.set_class("air" in planned, "-airy")
        body.set_class(not self.view.is_live, "-lost")
        for block in body.children:
            block.styles.height = planned.get(block.id or "", 0)
            block.display = block.id in planned
        shown = panels.figures_for(self.view, cells) if "digits" in planned else []
        for digits, figure in zip(self._digits, shown, strict=False):
            digits.styles.width = cells // len(shown)
            digits.set_class(figure.is_bad, "-bad")
            if digits.value != figure.value:
                digits.update(figure.value)

    # -- keys, clicks and the wheel

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Say whether a key does something now; the last line has those that do."""
        view = self.view
        if action in ("leave", "suspend_process"):
            return True
        if view.question is not None or action == "answer":
            return view.question is not None and action == "answer"
        if self._filter.has_focus:
            return action in ("show_all", "move")
        possible = {
            "ask": self._may_ask(parameters[0] if parameters else ""),
            "type": not view.is_helping,
            "show_all": bool(view.filter),
            "set": parameters != ("is_paused", view.is_paused),
        }
        return possible.get(action, True)

    def _may_ask(self, verb: object) -> bool:
        """Say whether a question is about what is on the screen; that for others asks nothing."""
        if self.view.tab == LINE_TAB or verb == "cancel":
            return self.view.tab == LINE_TAB and verb == "cancel"
        return bool(verb) == self.view.hello.admin

    async def run_action(self, *arguments: Any, **named: Any) -> bool:
        """Do what a key or a click means, and show it."""
        done = await super().run_action(*arguments, **named)
        self.draw()
        return done

    def on_key(self, event: events.Key) -> None:
        """Take a key before its binding: it ends a message, the help, and answers a question."""
        view = self.view
        view.message = ""
        if view.question is not None:
            event.prevent_default()
            self._answer(event.key in ("y", "Y"))
        elif view.is_helping:
            view.is_helping = False
            if event.key != "q":
                event.prevent_default()
        self.draw()

    def on_mouse_scroll_down(self) -> None:
        self.view.move(1)
        self.draw()

    def on_mouse_scroll_up(self) -> None:
        self.view.move(-1)
        self.draw()

    def action_leave(self, status: int) -> None:
        self.exit(status)

    def action_set(self, name: str, value: object) -> None:
        setattr(self.view, name, value)
        self._ask_for_requests()

    def action_move(self, by: int) -> None:
        self.view.move(by)

    def action_turn(self, by: int) -> None:
        self.view.tab = (self.view.tab + by) % len(panels.TABS)
        self._ask_for_requests()

    def action_ask(self, verb: str) -> None:
        self.view.ask(verb)

    def action_type(self) -> None:
        self._show_filter(True)
        self.screen.set_focus(self._filter)

    def action_show_all(self) -> None:
        self._filter.value = ""
        self.screen.set_focus(None)

    def on_input_changed(self, event: Input.Changed) -> None:
        self.view.filter = event.value
        self.draw()

    def on_input_submitted(self) -> None:
        self.screen.set_focus(None)

    def on_input_blurred(self) -> None:
        self._show_filter(False)

    def _show_filter(self, shown: bool) -> None:
        self.query_one("#typing").display = shown
        self.query_one(Footer).display = not shown

    # -- draining, resuming and cancelling

    def _answer(self, yes: bool) -> None:
        assert self.view.question is not None
        (verb, name), self.view.question = self.view.question, None
        if yes:
            self.view.say(f"Asking the gateway to {verb} {name}...")
            order = self._cancel(name) if verb == "cancel" else self._order(verb, name)
            self.run_worker(order, exit_on_error=True)
        else:
            self.view.say("Nothing was done.")

    async def _order(self, verb: str, name: str) -> None:
        try:
            node = await self._feed.tell(f"/admin/nodes/{quote(name, safe='')}/{verb}")
        except GaveUp as problem:
            self.view.say(f"{name} was not changed: {problem}", is_bad=True)
        else:
            running = node.get("in_flight")
            left = f" {running} still run there." if running else ""
            said = f"draining: nothing new starts there.{left} r resumes it."
            if verb == "resume":
                said = f"used again; it is {node.get('state', 'there')}."
            self.view.say(f"{name} is {said}")
        self.draw()

    async def _cancel(self, request_id: str) -> None:
        try:
            await self._feed.tell(f"/v1/queue/{quote(request_id)}", "DELETE")
        except GaveUp as problem:
            self.view.say(f"{request_id} was not cancelled: {problem}", is_bad=True)
        else:
            self.view.say(f"{request_id} is cancelled.")
        await self._fetch_requests()
        self.draw()
