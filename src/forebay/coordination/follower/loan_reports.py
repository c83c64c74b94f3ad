"""Short requests on lent slots, reported to the leader as a count instead of one by one.

Nothing that it decides depends on hearing of them at once: the slots are not its own meanwhile, and
before it could give them to others it must recall them. So a request that ends within `REPORT_S` of
its start is one of a number in a `RanOnLoan`, and costs no message; only one that lasts longer, or
to which something else happens, becomes a ticket like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from forebay.coordination.follower.local_ticket import LocalTicket
from forebay.coordination.protocol.messages import RanOnLoan

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.core import Arrived, Finished, Route

REPORT_S: Final = 0.05
"""How late the leader may hear of a start or an end: sooner than anyone looks twice."""


class LoanRun:
    """One request that runs on a lent slot."""

    __slots__ = ("arrival", "route", "since_s")

    def __init__(self, arrival: Arrived, route: Route, now_s: float) -> None:
        self.arrival = arrival
        self.route = route
        self.since_s = now_s


class _Ended:
    """Requests of one kind that have ended."""

    __slots__ = (
        "begun", "count", "event", "first_byte_s", "most", "output_tokens", "prompt_tokens",
        "ran_s", "run", "told",
    )  # fmt: skip

    def __init__(self, run: LoanRun, event: Finished) -> None:
        self.count = 0
        self.ran_s = 0.0
        self.begun = 0  # of which it is known when the first byte came
        self.first_byte_s = 0.0
        self.told = 0  # of which both counts of tokens are known
        self.prompt_tokens = self.output_tokens = 0
        self.most = 1  # at once
        self.run = run  # the last of them
        self.event = event

    def add(self, run: LoanRun, event: Finished, now_s: float, at_once: int) -> None:
        self.count += 1
        self.ran_s += now_s - run.since_s if event.ran_s is None else event.ran_s
        if event.first_byte_s is not None:
            self.begun += 1
            self.first_byte_s += event.first_byte_s
        if event.prompt_tokens >= 0 and event.output_tokens >= 0:
            self.told += 1
            self.prompt_tokens += event.prompt_tokens
            self.output_tokens += event.output_tokens
        self.most = max(self.most, at_once)
        self.run, self.event = run, event

    def mean(self, name: str) -> Finished:
        """Return what ended them all, with the mean of what was measured."""
        told = self.told
        return replace(
            self.event,
            id=name,
            prompt_tokens=round(self.prompt_tokens / told) if told else -1,
            output_tokens=round(self.output_tokens / told) if told else -1,
            first_byte_s=self.first_byte_s / self.begun if self.begun else None,
            ran_s=self.ran_s / self.count,
            count=self.count,
            most=self.most,
        )


class LoanReports:
    """Runs and endings that have not been reported yet."""

    def __init__(self, rename: Callable[[Arrived], Arrived]) -> None:
        """`rename` gives an arrival the id by which it is known among replicas."""
        self._rename = rename
        self.runs: dict[str, LoanRun] = {}
        """Those that run, by the caller's id, the eldest first."""
        self._ended: dict[tuple[object, ...], _Ended] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self.runs or self._ended)

    def start(self, arrival: Arrived, route: Route, now_s: float) -> None:
        self.runs[arrival.id] = LoanRun(arrival, route, now_s)

    def end(self, event: Finished, now_s: float) -> LoanRun:
        """Count the ending of one that has not been reported."""
        run = self.runs.pop(event.id)
        arrival = run.arrival
        kind = (
            arrival.user, arrival.key, arrival.model, arrival.family, arrival.priority,
            run.route.node, event.ok, event.strike, event.why,
        )  # fmt: skip
        ended = self._ended.get(kind)
        if ended is None:
            ended = self._ended[kind] = _Ended(run, event)
        ended.add(run, event, now_s, len(self.runs) + 1)
        return run

    def take_ticket(self, own_id: str) -> LocalTicket:
        """Take one that runs, as a ticket under the id by which replicas know it."""
        run = self.runs.pop(own_id)
        ticket = LocalTicket(self._rename(run.arrival), run.since_s)
        ticket.run(run.route, run.since_s)
        ticket.lent, ticket.seq, ticket.loan_id = True, 0, own_id
        return ticket

    def running(self, before_s: float | None) -> list[str]:
        """Return the ids of those that began before that moment; None: of all."""
        return [
            own_id
            for own_id, run in self.runs.items()
            if before_s is None or run.since_s <= before_s
        ]

    def take_ended(self, member: str) -> list[RanOnLoan]:
        """Take what there is to tell of those that have ended."""
        told: list[RanOnLoan] = []
        for one in self._ended.values():
            self._count += 1
            name = f"{member}.ran{self._count:x}"  # no other has it, not even a renamed one
            arrival = replace(one.run.arrival, id=name)
            told.append(RanOnLoan(arrival, one.run.route.node, one.mean(name)))
        self._ended.clear()
        return told
