"""What a replica remembers of each of its own tickets: enough to announce it to the next leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec.structs import replace

from forebay.core import Arrived, Audit, Expire, Lease, Reject, Resumed, Route, Snapshot, Wait

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.core import Action

Stage: TypeAlias = Literal[
    "asked",  # the leader has not decided yet
    "waiting",
    "running",
]


class Held:
    """One ticket of this replica."""

    __slots__ = (
        "arrival", "arrived_s", "attempt", "excluded", "lent", "node", "seq", "since_s", "stage",
        "waited_s",
    )  # fmt: skip

    def __init__(self, arrival: Arrived, now_s: float) -> None:
        self.arrival = arrival
        self.stage: Stage = "asked"
        self.arrived_s = now_s
        self.since_s = now_s  # when the present stage began
        self.waited_s = 0.0  # waiting before the present stage
        self.seq = 0
        self.attempt = 0
        self.node = ""
        self.excluded: tuple[str, ...] = ()
        self.lent = False  # whether it runs on a slot of a loan

    def wait(self, action: Wait) -> None:
        """Take note that it waits."""
        self.stage, self.seq = "waiting", action.seq

    def run(self, action: Route, now_s: float) -> None:
        """Take note that it runs."""
        self.stage, self.since_s = "running", now_s
        self.node, self.attempt, self.waited_s = action.node, action.attempt, action.waited_s
        if action.seq:
            self.seq = action.seq
        if action.model and action.model != self.arrival.model:
            self.arrival = replace(self.arrival, model=action.model)

    def come_back(self, now_s: float, *, exclude: bool) -> None:
        """Take note that it failed before its first byte and stands in line again."""
        if exclude and self.node not in self.excluded:
            self.excluded += (self.node,)
        self.stage, self.since_s, self.node, self.lent = "waiting", now_s, "", False

    def waited(self, now_s: float) -> float:
        """Return all the time it has spent waiting, up to now."""
        return self.waited_s if self.stage == "running" else self.waited_s + now_s - self.since_s

    def is_late(self, limit_s: float, now_s: float) -> bool:
        """Say whether it has waited as long as it may; jobs have all the time in the world."""
        if self.stage == "running" or self.arrival.job:
            return False
        own_s = self.arrival.max_wait_s
        return self.waited(now_s) >= (limit_s if own_s is None else min(own_s, limit_s))

    def announced(self, now_s: float) -> Arrived | Resumed:
        """Return what the next leader must hear of it; undecided, it arrives anew."""
        if self.stage == "asked":
            return self.arrival
        running = self.stage == "running"
        return Resumed(
            self.arrival,
            self.seq,
            self.waited(now_s),
            self.attempt,
            self.node,
            now_s - self.since_s if running else 0.0,
            self.excluded,
        )


def note(tickets: dict[str, Held], action: Action, now_s: float) -> bool:
    """Take note of what was decided about a ticket; False when it is nothing to anyone here."""
    if type(action) is not Route and isinstance(action, Snapshot | Audit):
        return True
    held = tickets.get(action.id)
    if held is None:
        return False  # its owner gave it up, and has said so
    if isinstance(action, Route):
        if held.stage == "running":
            return False  # never two grants at once
        held.run(action, now_s)
    elif isinstance(action, Wait):
        held.wait(action)
    elif isinstance(action, Reject | Expire):
        del tickets[action.id]
    return True


def announcement(tickets: Iterable[Held], now_s: float) -> list[Arrived | Resumed]:
    """Return all that a leader must hear: what runs comes first, for its slots are taken.

    What was not decided yet comes last: it is for whatever those before it leave.
    """
    in_order = sorted(tickets, key=lambda held: (held.stage != "running", held.stage == "asked"))
    return [held.announced(now_s) for held in in_order]


def audit(tickets: dict[str, Held]) -> Audit:
    """Return the leases that this replica goes by, whoever leads and whether anybody does."""
    running = (held for held in tickets.values() if held.stage == "running")
    return Audit(tuple(Lease(held.arrival.id, held.node) for held in running), len(tickets))


def late(tickets: Iterable[Held], limit_s: float, now_s: float) -> list[Expire]:
    """Return the end of those that have waited as long as they may."""
    return [
        Expire(held.arrival.id, "queue_timeout", held.waited(now_s))
        for held in tickets
        if held.is_late(limit_s, now_s)
    ]
