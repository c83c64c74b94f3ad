"""Node commands of operators, replicated over the gateways that share one queue.

Adding, removing, draining or resuming a node on one gateway holds on all of them: each command is
broadcast (topic `nodes`) and applied by the others, who do not pass it on. A broadcast may be lost:
who is away, or without a leader, gets nothing. So every gateway keeps the last command about each
node, and repeats all of them from time to time. One that was restarted has caught up within
REPEAT_S, and all converge. There are few: a node is seldom added or drained by hand.

Workers of one gateway need none of this: their leader has the nodes (`gateway/workers/node_news`).
Gateways cannot do it like them, because each one reaches nodes by its own network, and has settings
of its own.

The order of two commands must not depend on clocks, which may be an hour apart. A command's number
is the time in ms, but always above every number seen before (a hybrid logical clock, Kulkarni et
al. 2014); equal numbers are ordered by the name of the gateway.

Commands are validated like any input and idempotent. What cannot be applied on a gateway is logged
there once. When all gateways have stopped, the commands are gone, too.
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
REPEAT_S: Final = 10.0
"""How often commands are repeated: a drained node should not come back for long."""
MESSAGE_BYTES_MAX: Final = 131_072
"""A command with the largest node that `POST /admin/nodes` takes."""
COMMANDS_MAX: Final = 500
"""Commands that are kept; the oldest are forgotten first."""

Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Name = Annotated[str, msgspec.Meta(max_length=64)]


class NodeCommand(msgspec.Struct, frozen=True):
    """One command about one node."""

    action: Literal["add", "remove", "settle", "drain", "resume"]
    """`settle` leaves it to the settings whether the node exists: they were reloaded."""
    name: Name
    number: Number = 0
    by: Name = ""
    """The gateway on which it was given."""
    node: dict[str, Any] = {}
    """The body of `POST /admin/nodes`, where the action is to add one."""

    @property
    def subject(self) -> str:
        """What it replaces earlier commands about: that the node exists, or that it is used."""
        return f"{'use' if self.action in ('drain', 'resume') else 'node'} {self.name}"

    @property
    def version(self) -> tuple[int, str]:
        """By which the later one of two commands is known."""
        return self.number, self.by


class CommandMessage(msgspec.Struct, frozen=True):
    """A broadcast."""

    command: NodeCommand = msgspec.field(name="word")  # on the wire


_decode = msgspec.json.Decoder(CommandMessage).decode


class NodeCommandLog:
    """Applies node commands, here and on the other gateways."""

    def __init__(self, nodes: Nodes, clock: Timers) -> None:
        self._nodes = nodes
        self._fleet: Fleet | None = None
        self._clock = clock
        self._commands: dict[str, NodeCommand] = {}  # the last of each subject, oldest first
        self._number = 0
        self._timer: TimerHandle | None = None

    def join(self, fleet: Fleet) -> None:
        """Share commands with these gateways from now on."""
        self._fleet = fleet
        fleet.on_broadcast = self.hear
        self._arm_timer()

    def _arm_timer(self) -> None:
        if self._timer is None:
            at_s = self._clock.monotonic_s() + REPEAT_S
            self._timer = self._clock.call_at(at_s, self._repeat)

    def stop(self) -> None:
        """Repeat nothing any more; may be called twice."""
        if self._timer is not None:
            self._timer.cancel()

    # -- commands given here

    def add(self, settings: NodeSettings) -> Backend:
        """Add a node everywhere; raises NotAllowed for a name that is taken here."""
        backend = self._nodes.add(settings)
        node = settings.model_dump(mode="json", exclude_defaults=True)
        self._broadcast("add", settings.name, node)
        return backend

    def remove(self, backend: Backend) -> None:
        self._nodes.remove(backend.name)
        self._broadcast("remove", backend.name)

    def drain(self, backend: Backend) -> None:
        """Drain a node everywhere: nothing new starts on it."""
        backend.drain()
        self._broadcast("drain", backend.name)

    def resume(self, backend: Backend) -> None:
        """Use a drained node again everywhere."""
        backend.resume()
        self._broadcast("resume", backend.name)

    def settle(self, name: str) -> None:
        """Leave a node to the settings, which a reload has changed for it."""
        if f"node {name}" in self._commands:
            self._broadcast("settle", name)

    def _broadcast(self, action: Any, name: str, node: dict[str, Any] | None = None) -> None:
        if self._fleet is not None:
            self._number = max(self._number + 1, int(self._clock.utc().timestamp() * 1000))
            command = NodeCommand(action, name, self._number, self._fleet.me, node or {})
            self._keep(command)
            self._send(self._fleet, command)

    def _keep(self, command: NodeCommand) -> None:
        self._number = max(self._number, command.number)
        self._commands.pop(command.subject, None)
        self._commands[command.subject] = command
        while len(self._commands) > COMMANDS_MAX:
            del self._commands[next(iter(self._commands))]

    def _repeat(self) -> None:
        self._timer = None
        self._arm_timer()
        if self._fleet is not None:
            for command in self._commands.values():
                self._send(self._fleet, command)

    def _send(self, fleet: Fleet, command: NodeCommand) -> None:
        fleet.broadcast(TOPIC, msgspec.json.encode(CommandMessage(command)))

    # -- commands of other gateways

    def hear(self, topic: str, payload: bytes) -> None:
        """Apply a command of another gateway; an invalid one is logged."""
        if topic != TOPIC:
            return  # of a newer version
        try:
            message = _decode(payload if len(payload) <= MESSAGE_BYTES_MAX else b"")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            logger.warning("invalid node command from another gateway: %s", error)
            return
        command = message.command
        last = self._commands.get(command.subject)
        if last is not None and command.version <= last.version:
            return
        self._keep(command)
        try:
            if self._apply(command):
                extra = {"node": command.name, "change": command.action, "replica": command.by}
                logger.info("node command from another gateway applied", extra=extra)
        except (NotAllowed, SettingsError) as error:
            logger.warning("node command from another gateway cannot be applied: %s", error)

    def _apply(self, command: NodeCommand) -> bool:
        """Apply a command; return whether that changed anything."""
        backend = self._nodes.get(command.name)
        if command.action == "add":
            return self._add(command, backend)
        if backend is None or command.action == "settle":
            return False
        if command.action == "remove":
            return self._nodes.remove(command.name)
        if backend.draining == (command.action == "drain"):
            return False
        if command.action == "drain":
            backend.drain()
        else:
            backend.resume()
        return True

    def _add(self, command: NodeCommand, backend: Backend | None) -> bool:
        if command.node.get("api_key_env"):  # a store is no place from which to name our secrets
            raise NotAllowed(f"node {command.name!r} names a secret; add it in the settings file")
        settings = parse_node({**command.node, "name": command.name})
        if backend is None:
            self._nodes.add(settings)
        elif backend.settings.url != settings.url:
            raise NotAllowed(
                f"there is a node {command.name!r} already, at {backend.settings.url}, "
                f"not at {settings.url}"
            )
        use = self._commands.get(f"use {command.name}")
        if backend is None and use is not None:
            self._apply(use)  # it was drained before it came here
        return backend is None
