"""Which nodes have begun an answer lately, between the gateways or workers that share a queue.

A request that fails is held against its node only if nobody was answered there meanwhile
(`forebay.nodes.health`), and others may be answered by another gateway. So each one tells the
others once a second which nodes have answered it since; a gateway that hears of it a second late
at worst counts one failure too many, which the next answer voids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from forebay.clock import TimerHandle, Timers
    from forebay.coordination import Fleet
    from forebay.nodes.registry import Nodes

TOPIC: Final = "answers"
TELL_S: Final = 1.0


class NodeAnswers:
    """Tells of this gateway's nodes, and hears of those of the others."""

    def __init__(self, nodes: Nodes, clock: Timers) -> None:
        self._nodes = nodes
        self._clock = clock
        self._told_s = clock.monotonic_s()
        self._timer: TimerHandle | None = None

    def join(self, fleet: Fleet) -> None:
        """Share answers with these gateways from now on; other topics stay with who heard them."""
        others = fleet.on_broadcast

        def hear(topic: str, payload: bytes) -> None:
            (self._take(payload) if topic == TOPIC else others(topic, payload))

        fleet.on_broadcast = hear
        self._tell(fleet)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tell(self, fleet: Fleet) -> None:
        since_s, self._told_s = self._told_s, self._clock.monotonic_s()
        self._timer = self._clock.call_at(self._told_s + TELL_S, lambda: self._tell(fleet))
        names = [one.name for one in self._nodes if one.health.answered_s >= since_s]
        if names:
            fleet.broadcast(TOPIC, "\n".join(names).encode())

    def _take(self, payload: bytes) -> None:
        for name in payload.decode(errors="replace").split("\n"):
            backend = self._nodes.get(name)
            if backend is not None:
                backend.health.answered_others_s = self._clock.monotonic_s()
