"""One trial: a fleet under load, a schedule of faults, and what an outsider saw of it."""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import Struct, field, json

from harness.fleet.answer_checks import (
    Deaths,
    answered_twice,
    errors_outside,
    mixed_up,
    odd_errors,
    silent_gateways,
    without_answer,
)
from harness.fleet.crowd import Crowd, Person
from harness.fleet.elections import CHANGE, Elections
from harness.fleet.faults import Faults
from harness.fleet.fleet import Fleet
from harness.fleet.journal import Journal, Window, outside
from harness.fleet.order_checks import (
    TOLERANCE_S,
    begun,
    overtaken_in_line,
    urgent_kept_waiting,
)
from harness.fleet.plan import FleetPlan, NodePlan
from harness.fleet.program import until
from harness.fleet.pulse import Pulse
from harness.fleet.recording_node import RecordingNode, Running
from harness.fleet.schedule import Fault, length_s, windows_of
from harness.fleet.slot_checks import (
    episodes,
    outside_windows,
    overcommits,
    run_twice,
    too_much,
)

PEOPLE = (Person("ann", 6), Person("bob", 6), Person("eve", 1, "high"))
NODES = {"gpu1": 2, "gpu2": 1}
LATE_S = 0.5
"""How much longer than a lease an over-commit may be seen, beside what the machine is late by."""
OUT_OF_ORDER = 0.02
"""The share of requests that may begin out of order while all is calm: a slot that was lent to a
gateway ahead of need is used by whoever is there first."""


class Trial(Struct, frozen=True):
    """What is tried."""

    gateways: int = 2
    schedule: tuple[Fault, ...] = ()
    lease_s: float = 1.0
    calm_s: float = 0.0
    """How long to watch; 0 is as long as the schedule needs."""
    served: int = 0
    """Watch on until so many requests have been served."""
    coordinated: bool = True
    people: Sequence[Person] = PEOPLE
    slots: Mapping[str, int] = field(default_factory=NODES.copy)
    """What each node may run at once."""
    command: tuple[str, ...] = ()
    """How to run `forebay` in the gateways; for controls that are made to fail."""
    guards: bool = False
    """Put a guard in front of each node: then nothing is over-committed, whatever happens."""
    service_s: float = 0.05
    leaving: float = 0.03
    variables: Mapping[int, Mapping[str, str]] = {}
    """What is different in the environment of a gateway, by its number."""
    seed: int = 0


class Verdict(Struct):
    """What was found; `wrong` is empty when every promise was kept."""

    journal: Journal
    windows: list[Window]
    wrong: list[str]
    figures: dict[str, float]


async def run_trial(trial: Trial, folder: Path) -> Verdict:
    """Run a trial; raises ProgramFailed when the fleet does not even start."""
    loop = asyncio.get_running_loop()
    draw = random.Random(f"trial {trial.seed}")
    running: Running = []
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(RecordingNode(name, slots, running))
            for name, slots in trial.slots.items()
        ]
        plan = FleetPlan(
            gateways=trial.gateways,
            nodes=tuple(NodePlan(node.name, node.slots, node.url) for node in nodes),
            coordinated=trial.coordinated,
            lease_s=trial.lease_s,
            links=True,
            guards=trial.guards,
            command=trial.command,
            variables=trial.variables,
            # Turns by request: shares are counted in requests (`unfairness`).
            settings={"queue": {"max_size": 200, "fairness": "round_robin"}},
        )
        fleet = await stack.enter_async_context(Fleet(plan, folder))
        faults = Faults(fleet, draw)
        watch_s = trial.calm_s or length_s(trial.schedule, trial.lease_s)
        people = Crowd(
            fleet.ports, trial.people, draw, service_s=trial.service_s, leaving=trial.leaving
        )
        elections = Elections(fleet)
        pulse = Pulse(fleet)
        for watch in (elections.watch, pulse.watch):
            stack.callback(asyncio.ensure_future(watch()).cancel)
        async with people as crowd:
            start_s = loop.time()
            await faults.follow(trial.schedule)
            await asyncio.sleep(max(0.0, start_s + watch_s - loop.time()))
            await until(lambda: people.served >= trial.served, "too few requests were served")
        runs = [run for node in nodes for run in node.runs]
        journal = Journal(
            runs, crowd.asked, dict(trial.slots), loop.time(), pulse.missed, pulse.answered
        )
        deaths = {one.number - 1: one.deaths for one in fleet.gateways}
        windows = windows_of(faults.happened, trial.lease_s) + elections.windows(trial.lease_s)
        verdict = judge(journal, windows, deaths, trial.lease_s)
        silent = silent_gateways(journal, faults.away())
        verdict.wrong += [f"said nothing about its health: {one}" for one in silent]
    (folder / "verdict.json").write_bytes(json.encode(verdict))
    return verdict


def judge(journal: Journal, windows: list[Window], deaths: Deaths, lease_s: float) -> Verdict:
    """Hold what was seen against what is promised."""
    found = overcommits(journal)
    late_s = lateness_s(journal, windows)
    wrong = [
        f"over-committed outside of any fault: {one}" for one in outside_windows(found, windows)
    ]
    wrong += [
        f"over-committed beyond the promise: {one}"
        for one in too_much(episodes(found, lease_s / 2), journal.slots, lease_s + LATE_S + late_s)
    ]
    wrong += [f"run twice: {id}" for id in run_twice(journal)]
    wrong += [f"answered twice: {one}" for one in answered_twice(journal)]
    wrong += [f"answered with another's answer: {one}" for one in mixed_up(journal)]
    wrong += [f"never answered: {one}" for one in without_answer(journal, deaths)]
    wrong += [f"an error while all was calm: {one}" for one in errors_outside(journal, windows)]
    wrong += [f"an error that is none of ours: {one}" for one in odd_errors(journal)]
    overtaken = [
        one
        for one in [
            *overtaken_in_line(journal, TOLERANCE_S + late_s),
            *urgent_kept_waiting(journal, TOLERANCE_S + late_s),
        ]
        if outside(one.at_s, one.at_s + one.by_s, windows)
    ]
    served = len(begun(journal))
    if len(overtaken) > max(1.0, OUT_OF_ORDER * served):
        wrong.append(
            f"{len(overtaken)} of {served} out of order while all was calm: {overtaken[:3]}"
        )
    return Verdict(journal, windows, wrong, _figures(journal, windows, len(overtaken)))


def lateness_s(journal: Journal, windows: list[Window]) -> float:
    """Return how late this machine ran the gateways, at most, while nothing was wrong with them."""
    calm = [one for one in journal.pulses if outside(one.from_s, one.to_s, windows)]
    return max((one.to_s - one.from_s for one in calm), default=0.0)


def _figures(journal: Journal, windows: list[Window], overtaken: int) -> dict[str, float]:
    codes = Counter(one.code or str(one.status) for one in journal.asked if not one.left)
    found = overcommits(journal)
    longest_s = max((one.for_s for one in episodes(found, 0.5)), default=0.0)
    return {
        "asked": len(journal.asked),
        "left": sum(one.left for one in journal.asked),
        **{f"answered {code}": count for code, count in sorted(codes.items())},
        "changes of leader or mode": sum(one.why == CHANGE for one in windows),
        "out of order": overtaken,
        "over-commits": len(found),
        "over-committed most": max((one.over for one in found), default=0),
        "over-committed longest, s": round(longest_s, 3),
    }
