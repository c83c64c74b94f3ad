"""The result of a simulation, as one frozen value with a readable text form.

The recorder sees what the edge of a gateway sees: events, actions, and when.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.core.actions import Action, Expire, Reject, Route, Wait
from forebay.core.events import (
    Arrived,
    Cancelled,
    Event,
    Finished,
    NodeChanged,
    NodeRemoved,
    Returned,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True)
class RequestRecord:
    """One request from arrival to outcome."""

    id: str
    user: str
    priority: str
    model: str
    job: bool
    arrived_s: float
    waited_s: float | None
    """Until its first start; None when it never started."""
    p50_s: float | None
    """Promised on arrival, like `p90_s`; None when it did not wait or nothing was measured."""
    p90_s: float | None
    outcome: str
    """`served`, `failed`, `cancelled`, `queue_timeout` or the code of a refusal."""
    tokens: int
    """Prompt and output together; 0 unless served."""


@dataclass(frozen=True)
class Waits:
    """How long those waited that were started, those that started at once included."""

    count: int
    mean_s: float
    p50_s: float
    p90_s: float
    s_max: float

    @classmethod
    def of(cls, waits_s: Iterable[float]) -> Waits:
        ordered = sorted(waits_s)
        if not ordered:
            return cls(0, 0.0, 0.0, 0.0, 0.0)
        at = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.9)]
        return cls(len(ordered), sum(ordered) / len(ordered), at[0], at[1], ordered[-1])


@dataclass(frozen=True)
class Group:
    """One user, or one priority."""

    arrived: int
    served: int
    tokens: int
    waits: Waits

    @classmethod
    def of(cls, records: Sequence[RequestRecord]) -> Group:
        return cls(
            arrived=len(records),
            served=sum(record.outcome == "served" for record in records),
            tokens=sum(record.tokens for record in records),
            waits=Waits.of(r.waited_s for r in records if r.waited_s is not None),
        )


@dataclass(frozen=True)
class Coverage:
    """How often a wait was no longer than promised, among those that waited with a promise."""

    promised: int
    p50: float | None
    p90: float | None

    @classmethod
    def of(cls, records: Iterable[RequestRecord]) -> Coverage:
        kept = [
            (r.waited_s, r.p50_s, r.p90_s)
            for r in records
            if r.waited_s is not None and r.p50_s is not None and r.p90_s is not None
        ]
        if not kept:
            return cls(0, None, None)
        return cls(
            promised=len(kept),
            p50=sum(waited_s <= p50_s for waited_s, p50_s, _ in kept) / len(kept),
            p90=sum(waited_s <= p90_s for waited_s, _, p90_s in kept) / len(kept),
        )


@dataclass(frozen=True)
class Report:
    """The result of `Simulation.run`."""

    seed: int
    ended_s: float
    """When the last request was over, in virtual seconds."""
    steps: int
    users: Mapping[str, Group]
    priorities: Mapping[str, Group]
    outcomes: Mapping[str, int]
    goodput_per_s: float
    """Requests served per second of the run."""
    goodput_tokens_per_s: float
    loads: int
    """Models loaded by nodes."""
    utilisation: Mapping[str, float]
    """Share of each node's slot time that was leased."""
    coverage: Coverage
    digest: str
    """Of every action in order: equal for equal seeds."""
    requests: tuple[RequestRecord, ...]

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {code}" for code, count in sorted(self.outcomes.items()))
        nodes = ", ".join(f"{name} {share:.0%}" for name, share in self.utilisation.items())
        kept = self.coverage
        return "\n".join(
            [
                f"seed {self.seed}: {self.steps} steps, {self.ended_s:.1f} s of virtual time",
                f"  outcomes   {outcomes or 'none'}",
                f"  goodput    {self.goodput_per_s:.3f} requests/s, "
                f"{self.goodput_tokens_per_s:.1f} tokens/s",
                f"  nodes      {nodes or 'none'} leased; {self.loads} model loads",
                f"  promises   {kept.promised}: p50 kept {_percent(kept.p50)}, "
                f"p90 kept {_percent(kept.p90)}",
                *_table("priority", self.priorities),
                *_table("user", self.users),
            ]
        )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _table(title: str, groups: Mapping[str, Group]) -> list[str]:
    lines = [
        f"  {title:<12} {'arrived':>8} {'served':>8} {'tokens':>10} "
        f"{'mean wait':>10} {'p50':>8} {'p90':>8} {'max':>8}"
    ]
    for name, group in groups.items():
        waits = group.waits
        lines.append(
            f"  {name:<12} {group.arrived:>8} {group.served:>8} {group.tokens:>10} "
            f"{waits.mean_s:>9.2f}s {waits.p50_s:>7.2f}s {waits.p90_s:>7.2f}s {waits.s_max:>7.2f}s"
        )
    return lines


@dataclass(slots=True)
class _Open:
    """A request whose outcome is not known yet."""

    arrived: Arrived
    at_s: float
    waited_s: float | None = None
    p50_s: float | None = None
    p90_s: float | None = None

    def close(self, outcome: str, tokens: int = 0) -> RequestRecord:
        seen = self.arrived
        return RequestRecord(
            seen.id, seen.user, seen.priority, seen.model, seen.job, self.at_s, self.waited_s,
            self.p50_s, self.p90_s, outcome, tokens,
        )  # fmt: skip


class ReportRecorder:
    """Collects what a `Report` says, from events and actions alone."""

    def __init__(self, warmup_s: float) -> None:
        self._warmup_s = warmup_s
        self._open: dict[str, _Open] = {}
        self._closed: list[RequestRecord] = []
        self._slots: dict[str, int] = {}
        self._running: dict[str, str] = {}
        self._in_flight: Counter[str] = Counter()
        self._slot_s: defaultdict[str, float] = defaultdict(float)
        self._busy_s: defaultdict[str, float] = defaultdict(float)
        self._now_s = 0.0
        self._ended_s = 0.0
        self.steps = 0

    def note(self, event: Event, now_s: float, actions: Sequence[Action]) -> None:
        self.steps += 1
        if self._open or isinstance(event, Arrived):
            self._integrate(now_s)
        match event:
            case Arrived():
                self._open[event.id] = _Open(event, now_s)
            case Finished():
                tokens = max(0, event.prompt_tokens) + max(0, event.output_tokens)
                self._close(event.id, "served" if event.ok else "failed", tokens)
            case Cancelled():
                self._close(event.id, "cancelled")
            case Returned():
                self._release(event.id)
            case NodeChanged() | NodeRemoved():
                self._resize(event, now_s)
            case _:
                pass
        for action in actions:
            self._note_action(action)

    def _resize(self, event: NodeChanged | NodeRemoved, now_s: float) -> None:
        up = isinstance(event, NodeChanged) and event.state == "online"
        slots = event.slots if isinstance(event, NodeChanged) and up else 0
        if self._slots.get(event.name) != slots:
            self._integrate(now_s)
            self._slots[event.name] = slots

    def _note_action(self, action: Action) -> None:
        match action:
            case Route():
                self._running[action.id] = action.node
                self._in_flight[action.node] += 1
                seen = self._open[action.id]
                if seen.waited_s is None:
                    seen.waited_s = self._now_s - seen.at_s
            case Wait():
                seen = self._open[action.id]
                seen.p50_s, seen.p90_s = action.p50_s, action.p90_s
            case Reject() | Expire():
                self._close(action.id, action.code)
            case _:
                pass

    def _integrate(self, now_s: float) -> None:
        """Count time up to now; what comes after the last request is not counted."""
        elapsed_s = now_s - self._now_s
        if elapsed_s > 0.0:
            for name, slots in self._slots.items():
                busy = self._in_flight[name]
                self._slot_s[name] += elapsed_s * max(slots, busy)
                self._busy_s[name] += elapsed_s * busy
        self._now_s = now_s

    def _release(self, request_id: str) -> None:
        node = self._running.pop(request_id, None)
        if node is not None:
            self._in_flight[node] -= 1

    def _close(self, request_id: str, outcome: str, tokens: int = 0) -> None:
        self._release(request_id)
        seen = self._open.pop(request_id, None)
        if seen is not None:
            self._ended_s = self._now_s
            self._closed.append(seen.close(outcome, tokens if outcome == "served" else 0))

    def report(self, seed: int, loads: int, digest: str) -> Report:
        records = sorted(
            (record for record in self._closed if record.arrived_s >= self._warmup_s),
            key=lambda record: record.arrived_s,
        )
        by_user: defaultdict[str, list[RequestRecord]] = defaultdict(list)
        by_priority: defaultdict[str, list[RequestRecord]] = defaultdict(list)
        for record in records:
            by_user[record.user].append(record)
            by_priority[record.priority].append(record)
        counted_s = max(1e-9, self._ended_s - self._warmup_s)
        served = [record for record in records if record.outcome == "served"]
        return Report(
            seed=seed,
            ended_s=self._ended_s,
            steps=self.steps,
            users={user: Group.of(kept) for user, kept in by_user.items()},
            priorities={name: Group.of(kept) for name, kept in by_priority.items()},
            outcomes=dict(Counter(record.outcome for record in records)),
            goodput_per_s=len(served) / counted_s,
            goodput_tokens_per_s=sum(record.tokens for record in served) / counted_s,
            loads=loads,
            utilisation={
                name: self._busy_s[name] / slot_s if slot_s else 0.0
                for name, slot_s in self._slot_s.items()
            },
            coverage=Coverage.of(records),
            digest=digest,
            requests=tuple(records),
        )
