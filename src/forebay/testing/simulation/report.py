"""The result of a simulation: one record for each request, and what they come to.

The recorder sees what the edge of a gateway sees: events, actions, and when.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.core.actions import Action, Expire, Reject, Route, Wait
from forebay.core.events import Arrived, Cancelled, Event, Finished

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(slots=True)
class RequestRecord:
    """One request from arrival to outcome."""

    asked: Arrived
    arrived_s: float
    waited_s: float | None = None
    """Until its first start; None when it never started."""
    p50_s: float | None = None
    """Promised on arrival, like `p90_s`; None when it did not wait or nothing was measured."""
    p90_s: float | None = None
    queued: bool = False
    node: str = ""
    """Where it was started last."""
    ended_s: float = 0.0
    outcome: str = ""
    """`served`, `failed`, `cancelled`, `queue_timeout` or the code of a refusal; "" while open."""


@dataclass(frozen=True)
class Group:
    """Some requests, and how long those waited that were started (at once included)."""

    arrived: int
    served: int
    wait_s_mean: float
    wait_s_p90: float
    wait_s_max: float

    @classmethod
    def of(cls, records: Sequence[RequestRecord]) -> Group:
        waits_s = sorted(one.waited_s for one in records if one.waited_s is not None) or [0.0]
        return cls(
            arrived=len(records),
            served=sum(one.outcome == "served" for one in records),
            wait_s_mean=sum(waits_s) / len(waits_s),
            wait_s_p90=waits_s[min(len(waits_s) - 1, int(len(waits_s) * 0.9))],
            wait_s_max=waits_s[-1],
        )


@dataclass(frozen=True)
class Coverage:
    """How often a wait was no longer than promised, among those that waited with a promise."""

    promised: int
    p50: float
    p90: float

    @classmethod
    def of(cls, records: Iterable[RequestRecord]) -> Coverage:
        kept = [
            (one.waited_s <= one.p50_s, one.waited_s <= one.p90_s)
            for one in records
            if one.waited_s is not None and one.p50_s is not None and one.p90_s is not None
        ]
        of = max(1, len(kept))
        return cls(len(kept), sum(p50 for p50, _ in kept) / of, sum(p90 for _, p90 in kept) / of)


@dataclass(frozen=True)
class Report:
    """The result of `Simulation.run`."""

    seed: int
    steps: int
    loads: int
    """Models loaded by nodes."""
    digest: str
    """Of every action in order: equal for equal seeds."""
    requests: list[RequestRecord]
    """In order of arrival."""

    @property
    def ended_s(self) -> float:
        """When the last request was over, in virtual seconds."""
        return max((one.ended_s for one in self.requests), default=0.0)

    @property
    def outcomes(self) -> Counter[str]:
        return Counter(one.outcome for one in self.requests)

    @property
    def users(self) -> dict[str, Group]:
        found: defaultdict[str, list[RequestRecord]] = defaultdict(list)
        for one in self.requests:
            found[one.asked.user].append(one)
        return {user: Group.of(records) for user, records in found.items()}

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {code}" for code, count in sorted(self.outcomes.items()))
        kept = Coverage.of(self.requests)
        lines = [
            f"seed {self.seed}: {self.steps} steps, {self.ended_s:.1f} s of virtual time, "
            f"{self.loads} model loads",
            f"  outcomes   {outcomes or 'none'}",
            f"  promises   {kept.promised}: p50 kept {kept.p50:.1%}, p90 kept {kept.p90:.1%}",
            f"  {'user':<12} {'arrived':>8} {'served':>8} {'mean wait':>10} {'p90':>8} {'max':>8}",
        ]
        for name, one in self.users.items():
            lines.append(
                f"  {name:<12} {one.arrived:>8} {one.served:>8} {one.wait_s_mean:>9.2f}s "
                f"{one.wait_s_p90:>7.2f}s {one.wait_s_max:>7.2f}s"
            )
        return "\n".join(lines)


class Recorder:
    """Makes the records, from events and actions alone."""

    def __init__(self) -> None:
        self._records: list[RequestRecord] = []
        self._open: dict[str, RequestRecord] = {}
        self._steps = 0

    def note(self, event: Event, now_s: float, actions: Sequence[Action]) -> None:
        self._steps += 1
        match event:
            case Arrived():
                record = self._open[event.id] = RequestRecord(event, now_s)
                self._records.append(record)
            case Finished():
                self._close(event.id, now_s, "served" if event.ok else "failed")
            case Cancelled():
                self._close(event.id, now_s, "cancelled")
            case _:
                pass
        for action in actions:
            self._note_action(action, now_s)

    def _note_action(self, action: Action, now_s: float) -> None:
        match action:
            case Route():
                record = self._open[action.id]
                record.node = action.node
                if record.waited_s is None:
                    record.waited_s = now_s - record.arrived_s
            case Wait():
                record = self._open[action.id]
                record.queued, record.p50_s, record.p90_s = True, action.p50_s, action.p90_s
            case Reject() | Expire():
                self._close(action.id, now_s, action.code)
            case _:
                pass

    def _close(self, request_id: str, now_s: float, outcome: str) -> None:
        record = self._open.pop(request_id, None)
        if record is not None:
            record.ended_s, record.outcome = now_s, outcome

    def report(self, seed: int, loads: int, digest: str) -> Report:
        return Report(seed, self._steps, loads, digest, self._records)
