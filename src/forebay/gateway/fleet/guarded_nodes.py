"""Nodes that guards have registered, kept by heartbeats.

A guard sends a heartbeat every two seconds. The first one registers its node, each one reports its
state. After three missed heartbeats the node is offline: nothing new starts there, its models stay
known, and what runs there may finish, or fails and is retried on another node. A node without
heartbeats is forgotten after an hour; one whose guard deregisters, at once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from forebay.api.nodes import GuardHeartbeat
from forebay.errors import NotAllowed
from forebay.guard.heartbeat import AGAIN_S_MAX, HEARTBEAT_S, LOST_S
from forebay.guard.token import TOKEN_HEADER
from forebay.nodes.gpu import GpuReading
from forebay.settings import parse_node
from forebay.wire.deadlines import Deadlines

if TYPE_CHECKING:
    from forebay.clock import Timers
    from forebay.nodes.backend import Backend
    from forebay.nodes.registry import Nodes
    from forebay.settings import NodeSettings

logger = logging.getLogger("forebay.gateway")

FORGOTTEN_S: Final = 3600.0
"""How long a node without heartbeats stays known: longer than a restart takes, or than somebody
needs to plug a cable in again."""

UNKNOWN: Final = "unknown-"
"""The instance of a guard that this process has not heard of itself."""

FOUND_S: Final = AGAIN_S_MAX + HEARTBEAT_S
"""How long guards may take to find a gateway that was restarted: their longest backoff."""


class GuardRegistration:
    """One registration."""

    __slots__ = ("backend", "beat", "drained")

    def __init__(self, backend: Backend, beat: GuardHeartbeat) -> None:
        self.backend = backend
        self.beat = beat
        self.drained = False  # by its guard, not by an operator


class GuardedNodes:
    """The registrations by name."""

    def __init__(self, nodes: Nodes, token: str, clock: Timers) -> None:
        self._nodes = nodes
        self.token = token
        """What guards must show; "" lets none register."""
        self._clock = clock
        self._registered: dict[str, GuardRegistration] = {}
        self._heard = Deadlines(LOST_S, self._fall_silent, clock)
        self._remembered = Deadlines(FORGOTTEN_S, self._forget, clock)

    def start(self) -> None:
        """Expect guards: a model that no node has may be that of a guard that registers soon."""
        if self.token:
            self._nodes.expect_guards(FOUND_S)

    def hear(self, beat: GuardHeartbeat) -> bool:
        """Take a heartbeat; return whether it registered the node.

        Raises `SettingsError` for an invalid name or URL, and `NotAllowed` for the name of
        another node.
        """
        numbers = {"slots": beat.slots, "model_slots": beat.model_slots}
        settings = parse_node({"name": beat.name, "url": beat.url, **numbers})
        guarded = self._known(beat.name)
        is_new = guarded is None or guarded.beat.instance != beat.instance
        if guarded is None:
            guarded = self._register(beat, settings)
        elif is_new:
            self._take_over(guarded, beat, settings)
        self._take(guarded, beat)
        return is_new

    def adopt(self) -> None:
        """Take over the nodes of guards that spoke to another process of this gateway."""
        for backend in self._nodes:
            if backend.guarded and backend.name not in self._registered:
                settings = backend.settings
                beat = GuardHeartbeat(
                    name=backend.name,
                    url=settings.url,
                    instance=UNKNOWN,
                    state="draining" if backend.draining else "idle",
                    slots=max(1, backend.heard_slots),
                    model_slots=dict(settings.model_slots),
                )
                guarded = self._registered[backend.name] = GuardRegistration(backend, beat)
                guarded.drained = backend.draining
                self._heard.add(guarded)
                self._remembered.add(guarded)

    def leave(self, name: str, instance: str) -> bool:
        """Forget a node whose guard deregisters, unless a newer guard has taken over its name."""
        guarded = self._known(name)
        if guarded is None or (instance and guarded.beat.instance not in (instance, UNKNOWN)):
            return False
        self._forget(guarded)
        logger.info("guard deregistered", extra={"node": name})
        return True

    def stop(self) -> None:
        """Cancel all timers; may be called twice."""
        self._heard.clear()
        self._remembered.clear()

    def _known(self, name: str) -> GuardRegistration | None:
        """Return a registration, unless an operator has replaced its node."""
        guarded = self._registered.get(name)
        if guarded is not None and self._nodes.get(name) is not guarded.backend:
            self._drop(guarded)
            return None
        return guarded

    def _register(self, beat: GuardHeartbeat, settings: NodeSettings) -> GuardRegistration:
        if self._nodes.get(beat.name) is not None:
            raise NotAllowed(
                f"this gateway has a node {beat.name!r} of its own; give the guard another --name, "
                "or take that node out of the settings"
            )
        backend = self._nodes.add(settings, self.header())
        guarded = self._registered[beat.name] = GuardRegistration(backend, beat)
        logger.info("guard registered", extra={"node": beat.name, "url": backend.settings.url})
        return guarded

    def _take_over(
        self, guarded: GuardRegistration, beat: GuardHeartbeat, settings: NodeSettings
    ) -> None:
        """Let a restarted guard keep its name, but refuse a second guard of the same name."""
        known = guarded.backend.settings
        url = known.url
        if settings.url != url and not guarded.backend.health.is_silent:
            raise NotAllowed(
                f"the guard at {url} is named {beat.name!r} and alive; give this one another --name"
            )
        if (settings.url, settings.model_slots) != (url, known.model_slots):
            guarded.backend = self._nodes.replace(settings, self.header())
        logger.info("guard registered again", extra={"node": beat.name, "url": settings.url})

    def _take(self, guarded: GuardRegistration, beat: GuardHeartbeat) -> None:
        backend, before = guarded.backend, guarded.beat
        guarded.beat = beat
        self._heard.add(guarded)
        self._remembered.add(guarded)
        gpu = None
        if beat.gpu_load is not None:
            gpu = GpuReading(beat.gpu_load, beat.vram_used_bytes or 0, beat.vram_total_bytes or 0)
        backend.heard(beat.slots, gpu, beat.kv_free_tokens)
        if beat.state == "draining":
            if not guarded.drained and not backend.draining:
                guarded.drained = True
                backend.drain()
        elif guarded.drained:
            guarded.drained = False
            backend.resume()
        if _serves(beat) != _serves(before):
            backend.refresh()

    def _fall_silent(self, guarded: GuardRegistration) -> None:
        if self._known(guarded.beat.name) is guarded:
            guarded.backend.fell_silent()

    def _forget(self, guarded: GuardRegistration) -> None:
        name = guarded.beat.name
        if self._known(name) is guarded:
            self._drop(guarded)
            self._nodes.remove(name)

    def _drop(self, guarded: GuardRegistration) -> None:
        del self._registered[guarded.beat.name]
        self._heard.discard(guarded)
        self._remembered.discard(guarded)

    def header(self) -> bytes:
        """Return the header by which guards know this gateway."""
        return f"{TOKEN_HEADER}: {self.token}\r\n".encode()


def _serves(beat: GuardHeartbeat) -> str:
    """Return the state of a guard's backend, whether idle or busy."""
    return "online" if beat.state in ("idle", "busy") else beat.state
