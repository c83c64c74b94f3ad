"""What an operator does to nodes on one gateway holds for all that share its queue.

Each action is a word, told to the others (topic `nodes`), who do the same; what is heard is never
told on. A word may be lost: who is away, or without a leader, hears nothing. So everyone remembers
the last word about each node, and the leader says all of its words again from time to time, with a
list of what they were; whoever knows a later one answers with it. So a gateway that was restarted
learns within REMIND_S what was done meanwhile, and all come to the same.

Which of two words is the later one must not hang on clocks, which may be an hour apart. A word's
number is the time in ms, but always above every number heard before (a hybrid logical clock,
Kulkarni et al. 2014); equal numbers go by the name of the gateway.

A word is checked like any input, does nothing the second time, and what cannot be done on one
gateway is logged there once. When all gateways have ended, the words have, too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from forebay.errors import NotAllowed
from forebay.settings import SettingsError, parse_node

if TYPE_CHECKING:
    from forebay.clock import TimerHandle, Timers
    from forebay.coordination import Fleet
    from forebay.nodes.backend import Backend
    from forebay.nodes.registry import Nodes
    from forebay.settings import NodeSettings

logger = logging.getLogger("forebay.gateway")

TOPIC: Final = "nodes"
REMIND_S: Final = 10.0
"""How often the leader says everything again: a drained node should not come back for long."""
WORD_BYTES_MAX: Final = 131_072
"""A word with the largest node that `POST /admin/nodes` takes, or the list of all words."""
WORDS_MAX: Final = 500
"""Words that are remembered; the oldest are forgotten first."""

Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Name = Annotated[str, msgspec.Meta(max_length=64)]


class NodeCommand(msgspec.Struct, frozen=True):
    """One action."""

    action: Literal["add", "remove", "settle", "drain", "resume"]
    """`settle` leaves it to the settings whether the node is there: they were read anew."""
    name: Name
    number: Number = 0
    by: Name = ""
    """The gateway on which it was said."""
    node: dict[str, Any] = {}
    """As `POST /admin/nodes` takes it, where the action is to add one."""

    @property
    def about(self) -> str:
        """What it replaces an earlier word about: that the node is there, or that it is used."""
        return f"{'use' if self.action in ('drain', 'resume') else 'node'} {self.name}"


class CommandMessage(msgspec.Struct, frozen=True):
    """What one gateway tells the others: a word, or which words it knows."""

    word: NodeCommand | None = None
    known: dict[str, tuple[Number, Name]] | None = None
    """The number of the last word, and who said it, by what it is about."""


_decode = msgspec.json.Decoder(CommandMessage).decode


class NodeCommandLog:
    """Does what operators say of nodes, here and elsewhere."""

    def __init__(self, nodes: Nodes, clock: Timers) -> None:
        self._nodes = nodes
        self._fleet: Fleet | None = None
        self._clock = clock
        self._words: dict[str, NodeCommand] = {}  # the last about each thing, the oldest first
        self._number = 0
        self._timer: TimerHandle | None = None

    def join(self, fleet: Fleet) -> None:
        """Share commands with these gateways from now on."""
        self._fleet = fleet
        fleet.on_told = self.hear
        self._arm_timer()

    def _arm_timer(self) -> None:
        if self._timer is None:
            at_s = self._clock.monotonic_s() + REMIND_S
            self._timer = self._clock.call_at(at_s, self._remind)

    def stop(self) -> None:
        """Remind nobody any more; may be called twice."""
        if self._timer is not None:
            self._timer.cancel()

    # -- said here

    def add(self, settings: NodeSettings) -> Backend:
        """Take a node in, everywhere; raises NotAllowed for a name that is taken here."""
        backend = self._nodes.add(settings)
        self._say("add", settings.name, settings.model_dump(mode="json", exclude_defaults=True))
        return backend

    def remove(self, backend: Backend) -> None:
        """Take a node out, everywhere."""
        self._nodes.remove(backend.name)
        self._say("remove", backend.name)

    def drain(self, backend: Backend) -> None:
        """Let nothing new start on a node, from anywhere."""
        backend.drain()
        self._say("drain", backend.name)

    def resume(self, backend: Backend) -> None:
        """Use a drained node again, everywhere."""
        backend.resume()
        self._say("resume", backend.name)

    def settle(self, name: str) -> None:
        """Leave a node to the settings, which have just said something new about it."""
        if f"node {name}" in self._words:
            self._say("settle", name)

    def _say(self, action: Any, name: str, node: dict[str, Any] | None = None) -> None:
        fleet = self._fleet
        if fleet is not None:
            self._number = max(self._number + 1, int(self._clock.utc().timestamp() * 1000))
            word = NodeCommand(action, name, self._number, fleet.me, node or {})
            self._remember(word)
            _tell(fleet, CommandMessage(word))

    def _remember(self, word: NodeCommand) -> None:
        self._number = max(self._number, word.number)
        self._words.pop(word.about, None)
        self._words[word.about] = word
        while len(self._words) > WORDS_MAX:
            del self._words[next(iter(self._words))]

    def _remind(self) -> None:
        self._timer = None
        self._arm_timer()
        fleet = self._fleet
        if fleet is None:
            return
        seen = fleet.picture()
        if any(one.name == seen.me and one.state == "leading" for one in seen.replicas):
            for word in self._words.values():
                _tell(fleet, CommandMessage(word))
            known = {word.about: (word.number, word.by) for word in self._words.values()}
            _tell(fleet, CommandMessage(known=known))

    # -- said elsewhere

    def hear(self, topic: str, payload: bytes) -> None:
        """Do what was done on another gateway; whatever is wrong with it is logged."""
        if topic != TOPIC:
            return  # of a newer version, or for somebody else
        try:
            said = _decode(payload if len(payload) <= WORD_BYTES_MAX else b"")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            logger.warning("another gateway told of nodes in words that make no sense: %s", error)
            return
        if said.word is not None:
            self._take(said.word)
        if said.known is not None:
            self._answer(said.known)

    def _take(self, word: NodeCommand) -> None:
        last = self._words.get(word.about)
        if last is not None and (word.number, word.by) <= (last.number, last.by):
            return
        self._remember(word)
        try:
            if self._do(word):
                extra = {"node": word.name, "change": word.action, "replica": word.by}
                logger.info("nodes changed on another gateway", extra=extra)
        except (NotAllowed, SettingsError) as error:
            logger.warning("what was done on another gateway cannot be done here: %s", error)

    def _answer(self, known: dict[str, tuple[int, str]]) -> None:
        """Tell whoever leads what it does not know."""
        fleet = self._fleet
        for about, word in self._words.items():
            if fleet is not None and (word.number, word.by) > known.get(about, (-1, "")):
                _tell(fleet, CommandMessage(word))

    def _do(self, word: NodeCommand) -> bool:
        """Do it; return whether that changed anything."""
        backend = self._nodes.get(word.name)
        if word.action == "add":
            return self._add(word, backend)
        if backend is None or word.action == "settle":
            return False
        if word.action == "remove":
            return self._nodes.remove(word.name)
        if backend.draining == (word.action == "drain"):
            return False
        if word.action == "drain":
            backend.drain()
        else:
            backend.resume()
        return True

    def _add(self, word: NodeCommand, backend: Backend | None) -> bool:
        if word.node.get("api_key_env"):  # a store is no place from which to name our secrets
            raise NotAllowed(f"node {word.name!r} names a secret; add it in the settings file")
        settings = parse_node({**word.node, "name": word.name})
        if backend is None:
            self._nodes.add(settings)
        elif backend.settings.url != settings.url:
            raise NotAllowed(
                f"there is a node {word.name!r} already, at {backend.settings.url}, "
                f"not at {settings.url}"
            )
        use = self._words.get(f"use {word.name}")
        if backend is None and use is not None:
            self._do(use)  # it was drained before it came here
        return backend is None


def _tell(fleet: Fleet, said: CommandMessage) -> None:
    fleet.tell(TOPIC, msgspec.json.encode(said))
