"""What one person looks at: the newest picture, and what they have chosen, typed and asked for.

`press` takes a key and says what is to be done about it outside, if anything is: so what the keys
mean is tested without a terminal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from forebay.terminal.timeline import Timeline
from forebay.terminal.values import Hello, Model, Node, Snapshot

PANELS = ("overview", "nodes", "models and jobs", "troubles")
FILTER_LETTERS_MAX = 100
NOT_ADMIN = "Only an admin's key may drain and resume nodes: name one with --key-env VAR."


class Order(NamedTuple):
    """Something to be done outside: `quit`, or `drain` or `resume` with the name of a node."""

    verb: str
    node: str = ""


@dataclass
class Link:
    """How the connection to the gateway is."""

    is_live: bool = False
    reason: str = ""
    """Why it is not, in words; empty before the first attempt has ended."""
    since_s: float | None = None
    """When it was lost."""


@dataclass
class View:
    """All that a picture is drawn from."""

    url: str
    hello: Hello = field(default_factory=Hello)
    snapshot: Snapshot | None = None
    """None until the first has come."""
    timeline: Timeline = field(default_factory=Timeline)
    link: Link = field(default_factory=Link)
    now: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    now_s: float = 0.0
    panel: int = 0
    filter: str = ""
    is_typing: bool = False
    """Whether keys go into the filter."""
    is_paused: bool = False
    is_helping: bool = False
    chosen: str | None = None
    """The name of the node that the cursor was put on; it stays when the node is gone a while."""
    question: Order | None = None
    """What waits for a yes."""
    message: str = ""
    message_is_bad: bool = False
    is_still: bool = False
    """Drawn once, for a pipe: no keys, no cursor."""

    # -- what comes

    def take_hello(self, hello: Hello) -> None:
        """Begin anew with what a connection says first."""
        restarted = self.hello.epoch and hello.epoch != self.hello.epoch
        came_back = self.link.since_s is not None
        if restarted:
            self.say("The gateway has been restarted; totals count from its start.")
        elif came_back:
            self.say("The gateway is back.")
        self.hello = hello
        self.timeline.begin(hello)
        self.link = Link(is_live=True)

    def take_snapshot(self, snapshot: Snapshot) -> None:
        """Take the next picture; while paused only the time line goes on."""
        self.timeline.add(snapshot)
        if not self.is_paused or self.snapshot is None:
            self.snapshot = snapshot

    def lose(self, reason: str) -> None:
        """Note that the connection is lost, and why."""
        since_s = self.link.since_s
        self.link = Link(False, reason, self.now_s if since_s is None else since_s)

    def say(self, message: str, *, is_bad: bool = False) -> None:
        """Show a message until the next key."""
        self.message, self.message_is_bad = message, is_bad

    # -- what is shown

    def nodes(self) -> list[Node]:
        """Return the nodes that the filter lets through."""
        return [node for node in self._all_nodes() if self._lets_through(node)]

    def models(self) -> list[Model]:
        """Return the models that the filter lets through."""
        found = self.snapshot.models if self.snapshot else []
        return [model for model in found if self.filter.casefold() in model.model.casefold()]

    def chosen_node(self) -> Node | None:
        """Return the node that the cursor is on; the first, while the chosen one is not there."""
        nodes = self.nodes()
        first = nodes[0] if nodes else None
        return next((node for node in nodes if node.name == self.chosen), first)

    def choose(self, name: str) -> None:
        """Put the cursor on a node."""
        self.chosen = name

    def move(self, by: int) -> None:
        """Move the cursor, no further than the first and the last node."""
        names = [node.name for node in self.nodes()]
        if names:
            place = (names.index(self.chosen) if self.chosen in names else 0) + by
            self.chosen = names[max(0, min(len(names) - 1, place))]

    # -- keys

    def press(self, key: str, letter: str | None = None) -> Order | None:
        """Take a key; `letter` is what it types."""
        if key in ("ctrl+c", "ctrl+q"):
            return Order("interrupt" if key == "ctrl+c" else "quit")
        if self.question is not None:
            return self._answered(key)
        if self.is_typing:
            self._type(key, letter)
            return None
        self.message = ""
        if self.is_helping:
            self.is_helping = False
            return Order("quit") if key == "q" else None
        return self._command(key)

    def paste(self, text: str) -> None:
        """Take pasted text into the filter, if it is being typed."""
        if self.is_typing:
            self._set_filter(self.filter + text.partition("\n")[0])

    def _command(self, key: str) -> Order | None:
        match key:
            case "q":
                return Order("quit")
            case "d" | "r":
                self._ask("drain" if key == "d" else "resume")
            case "1" | "2" | "3" | "4":
                self.panel = int(key) - 1
            case "tab" | "shift+tab":
                self.panel = (self.panel + (1 if key == "tab" else -1)) % len(PANELS)
            case _:
                self._small_command(key)
        return None

    def _small_command(self, key: str) -> None:
        moves = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -10, "pagedown": 10}
        moves |= {"home": -1_000_000, "g": -1_000_000, "end": 1_000_000, "G": 1_000_000}
        if key in moves:
            self.move(moves[key])
        elif key in ("slash", "/"):
            self.is_typing = True
        elif key == "escape":
            self._set_filter("")
        elif key in ("p", "space"):
            self.is_paused = not self.is_paused
        elif key in ("question_mark", "?", "h", "f1"):
            self.is_helping = True

    def _ask(self, verb: str) -> None:
        node = self.chosen_node()
        if not self.hello.admin:
            self.say(NOT_ADMIN, is_bad=True)
        elif not self.link.is_live:
            self.say("The gateway cannot be reached now.", is_bad=True)
        elif node is None:
            self.say("There is no node to choose.", is_bad=True)
        elif verb == "drain" and node.state == "draining":
            self.say(f"{node.name} is draining already; r resumes it.")
        elif verb == "resume" and node.state != "draining":
            self.say(f"{node.name} is not draining; there is nothing to resume.")
        else:
            self.question = Order(verb, node.name)

    def _answered(self, key: str) -> Order | None:
        asked, self.question = self.question, None
        self.message = ""
        if key in ("y", "Y"):
            return asked
        self.say("Nothing was done.")
        return None

    def _type(self, key: str, letter: str | None) -> None:
        if key == "enter":
            self.is_typing = False
        elif key == "escape":
            self.is_typing = False
            self._set_filter("")
        elif key in ("backspace", "ctrl+h"):
            self._set_filter(self.filter[:-1])
        elif key == "ctrl+u":
            self._set_filter("")
        elif key in ("up", "down"):
            self.move(-1 if key == "up" else 1)
        elif letter is not None and letter.isprintable():
            self._set_filter(self.filter + letter)

    # -- inside

    def _set_filter(self, text: str) -> None:
        self.filter = text[:FILTER_LETTERS_MAX]

    def _all_nodes(self) -> list[Node]:
        return self.snapshot.nodes if self.snapshot else []

    def _lets_through(self, node: Node) -> bool:
        wanted = self.filter.casefold()
        texts = (node.name, node.state, node.kind or "", *node.models, *(node.loaded or ()))
        return any(wanted in text.casefold() for text in texts)
