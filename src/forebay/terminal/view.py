"""What one person looks at: the newest snapshot, and what they have chosen, typed and asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from forebay.sdk.status import LiveHello, LiveSnapshot
from forebay.terminal.timeline import Timeline

if TYPE_CHECKING:
    from forebay.sdk.status import LiveModel, NodeStatus

NOT_ADMIN = "Only an admin's key may drain and resume nodes: name one with --key-env VAR."


@dataclass
class TopView:
    """All that the panels are drawn from."""

    url: str
    hello: LiveHello = field(default_factory=LiveHello)
    snapshot: LiveSnapshot = field(default_factory=LiveSnapshot)
    has_snapshot: bool = False
    """Whether the first has come."""
    timeline: Timeline = field(default_factory=Timeline)
    is_live: bool = False
    """Whether the gateway is connected."""
    lost_reason: str = ""
    lost_s: float | None = None
    """When the connection was lost; None before the first attempt has ended."""
    now: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    now_s: float = 0.0
    tab: int = 0
    filter: str = ""
    is_paused: bool = False
    is_helping: bool = False
    chosen: str | None = None
    """The name of the node that the cursor was put on; it stays when the node is gone a while."""
    question: tuple[str, str] | None = None
    """What waits for a yes: `drain` or `resume`, and the name of the node."""
    message: str = ""
    message_is_bad: bool = False
    is_still: bool = False
    """Drawn once, for a pipe: no keys, no cursor."""

    def take_hello(self, hello: LiveHello) -> None:
        """Begin anew with what a connection says first."""
        if self.hello.epoch and hello.epoch != self.hello.epoch:
            self.say("The gateway has been restarted; totals count from its start.")
        elif self.lost_s is not None:
            self.say("The gateway is back.")
        self.hello = hello
        self.timeline.begin(hello)
        self.is_live, self.lost_reason, self.lost_s = True, "", None

    def take_snapshot(self, snapshot: LiveSnapshot) -> None:
        """Take the next snapshot; while paused only the time line goes on."""
        self.timeline.add(snapshot)
        if not self.is_paused or not self.has_snapshot:
            self.snapshot, self.has_snapshot = snapshot, True

    def lose(self, reason: str) -> None:
        """Note that the connection is lost, and why."""
        self.is_live, self.lost_reason = False, reason
        self.lost_s = self.now_s if self.lost_s is None else self.lost_s

    def say(self, message: str, *, is_bad: bool = False) -> None:
        """Show a message until the next key."""
        self.message, self.message_is_bad = message, is_bad

    def ask(self, verb: str) -> None:
        """Ask whether to drain or resume the chosen node, or say why that cannot be."""
        node = self.chosen_node()
        if not self.is_live:
            self.say("The gateway cannot be reached now.", is_bad=True)
        elif not self.hello.admin:
            self.say(NOT_ADMIN, is_bad=True)
        elif node is None:
            self.say("There is no node to choose.", is_bad=True)
        elif verb == "drain" and node.state == "draining":
            self.say(f"{node.name} is draining already; r resumes it.")
        elif verb == "resume" and node.state != "draining":
            self.say(f"{node.name} is not draining; there is nothing to resume.")
        else:
            self.question = (verb, node.name)

    # -- what is shown

    def nodes(self) -> list[NodeStatus]:
        """Return the nodes that the filter lets through."""
        if not self.filter:
            return self.snapshot.nodes
        return [node for node in self.snapshot.nodes if self._lets_through(node)]

    def models(self) -> list[LiveModel]:
        """Return the models that the filter lets through."""
        wanted = self.filter.casefold()
        return [model for model in self.snapshot.models if wanted in model.model.casefold()]

    def chosen_node(self) -> NodeStatus | None:
        """Return the node that the cursor is on; the first, while the chosen one is not there."""
        nodes = self.nodes()
        first = nodes[0] if nodes else None
        return next((node for node in nodes if node.name == self.chosen), first)

    def move(self, by: int) -> None:
        """Move the cursor, no further than the first and the last node."""
        names = [node.name for node in self.nodes()]
        if names:
            place = (names.index(self.chosen) if self.chosen in names else 0) + by
            self.chosen = names[max(0, min(len(names) - 1, place))]

    def _lets_through(self, node: NodeStatus) -> bool:
        wanted = self.filter.casefold()
        texts = (node.name, node.state, node.kind or "", *node.models, *(node.loaded or ()))
        return any(wanted in text.casefold() for text in texts)
