"""How near `slots = "auto"` comes to the best fixed number, on engines in virtual time.

    python -m bench.slots [--engines 60] [--seed 1] [--plain | --in-turn] [--clients 2 [--noise]]
                          [--starts | --changes | --swings | --trace CSV]

An engine is drawn by its seed: where its throughput bends, how sharply, whether prompts slow down
as answers do, what it does beyond (shares, gets slower, queues inside, says so, refuses), and what
is asked of it. The best fixed number is the smallest within 1 in 100 of the most throughput, by
calculation; first bytes are compared on the same requests.

First bytes are counted from when a request was sent to the engine, of an endless backlog. With
`--clients` there are so many times as many clients as the best number, each of which sends its next
request when it has an answer, and they are counted from then, as clients do. With `--noise`, the
best number is compared with itself, on other requests: how far two equal runs are apart.

With `--plain`, engines are those that one would write down: an exact knee from 1 to 32, requests
that are all alike or of usual sizes. With `--in-turn`, they read prompts one after the other, for
0.2 to 1.3 times as long as they could, all in all, if as many as they run were writing or reading
all the time; measure them with `--clients`.

With `--starts` the limit starts anywhere. With `--changes`, an engine gets two to four times its
room or loses as much, and what counts is how many answers it takes to be near the new number. With
`--swings`, its speed is another after every 10 to 60 answers, from two thirds to one and a half,
with the same number of slots best all the time, and with twice as many clients. With a trace,
requests come when it says and as long as it says, and its time is scaled so that the best fixed
number would be busy for `--busy` of it.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import pairwise
from math import exp
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from forebay.core.slots import SLOTS_MAX
from harness.shared_speed import (
    BACKLOG,
    LOAD,
    Figures,
    Load,
    Run,
    Server,
    figures,
    flat,
    queueing,
    refusing,
    thrashing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KINDS = ("sharp", "soft", "thrashing", "queueing", "telling", "refusing")
NAMES = (*KINDS, "in turn", "all")
PLAIN: tuple[tuple[str, Callable[[int], Server]], ...] = (
    ("sharp", flat),
    ("thrashing", thrashing),
    ("queueing", queueing),
    ("telling", lambda knee: replace(queueing(knee), tells=True)),
    ("refusing", refusing),
)
KNEES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
ALIKE = Load(prompt=(6.0, 0.0), output=(4.5, 0.0), luck=0.05)
WARM_ROUNDS = 3
MEASURED = 800
OTHERS = 10**6
"""What is added to a seed for other requests."""
NEAR = 0.9
"""Found is the number from where on a fixed limit would reach this share of the best throughput."""
LATER = 1.25
START = 4
"""What a node of no known kind begins with."""
SWING = 0.2
SWING_ANSWERS = 10, 60
"""The deviation of a machine's speed (its logarithm), and after how many answers it is another."""
WITHIN = 60
Row = tuple[float, int, int]


@dataclass(frozen=True)
class Drawn:
    """A random engine and its load."""

    seed: int
    kind: str
    engine: Server
    load: Load
    knee: float
    start: int = START


def smooth(knee: float, sharpness: float, worse: float = 0.0) -> Callable[[int], float]:
    """Return 1 up to the knee and n / knee far beyond it, the corner as sharp as said."""
    one = (1.0 + knee**-sharpness) ** (1.0 / sharpness)

    def slowdown(n: int) -> float:
        shared = (1.0 + (n / knee) ** sharpness) ** (1.0 / sharpness) / one
        return float(shared * max(1.0, n / (1.5 * knee)) ** worse)

    return slowdown


def draw(seed: int, room: float = 1.0) -> Drawn:
    """Return the engine of this seed, with so many times its room; kinds take turns."""
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    knee = room * 2.0 ** rng.uniform(0.5, 6.3)
    sharpness = rng.uniform(1.0, 2.0) if kind == "soft" else rng.uniform(3.0, 12.0)
    worse = rng.uniform(0.2, 1.0) if kind == "thrashing" else 0.0
    runs = max(1, round(knee * rng.uniform(0.5, 1.5)))
    prompts = smooth(knee * rng.uniform(0.5, 1.0), sharpness, worse)
    load = Load(
        prompt=(rng.uniform(4.0, 8.0), rng.uniform(0.3, 1.2)),
        output=(rng.uniform(2.5, 6.0), rng.uniform(0.3, 1.0)),
        luck=rng.uniform(0.05, 0.3),
        base_s=rng.uniform(0.01, 0.2),
        prompt_token_s=10.0 ** rng.uniform(-4.5, -3.0),
        output_token_s=10.0 ** rng.uniform(-2.3, -1.3),
    )
    limits = {}
    if kind in ("queueing", "telling"):
        limits = {"runs": runs}
    elif kind == "refusing":
        limits = {"admits": runs}
    engine = Server(
        smooth(knee, sharpness, worse), **limits, tells=kind == "telling",
        prompt_slowdown=prompts if rng.random() < 0.5 else None,
    )  # fmt: skip
    return Drawn(seed, kind, engine, load, knee)


def plain(number: int, room: float = 1.0) -> Drawn:
    """Return one of the engines with an exact knee; kinds, then knees, then loads take turns."""
    kind, make = PLAIN[number % len(PLAIN)]
    knee = max(1, round(room * KNEES[number // len(PLAIN) % len(KNEES)]))
    load = (ALIKE, LOAD)[number // len(PLAIN) // len(KNEES) % 2]
    return Drawn(number, kind, make(knee), load, knee)


def in_turn(number: int, room: float = 1.0) -> Drawn:
    """Return one that reads prompts one after the other, those that run."""
    rng = random.Random(number)
    runs, busy = max(1, round(room * rng.choice((3, 4, 6, 8, 12)))), rng.uniform(0.2, 1.3)
    prompt, output = (6.0, rng.uniform(0.3, 1.2)), (4.0, rng.uniform(0.3, 0.9))
    reads_s = 1.0 / max(0.05, runs / busy - 1.0)  # for each second of writing
    load = Load(
        prompt,
        output,
        luck=rng.uniform(0.02, 0.15),
        base_s=0.1 * reads_s,
        prompt_token_s=0.9 * reads_s / mean(prompt),
        output_token_s=1.0 / mean(output),
    )
    return Drawn(number, "in turn", Server(runs=runs, reads=1), load, runs)


def throughputs(drawn: Drawn) -> list[float]:
    """Return the work that is done per second with 1, 2, 3... at once, by Little's law.

    Each of n requests reads for its share of the time and then writes, both at the speed of n. If
    prompts are read one after the other, each waits for as many as are read or waiting with n - 1
    requests (mean value analysis: Reiser and Lavenberg, 1980).
    """
    engine, load = drawn.engine, drawn.load
    reads = load.base_s + load.prompt_token_s * mean(load.prompt)
    writes = load.output_token_s * mean(load.output)
    done: list[float] = []
    if engine.reads == 1:
        unread = 0.0
        for n in range(1, SLOTS_MAX + 1):
            if n <= engine.runs:
                took = reads * (1.0 + unread)
                unread = n * took / (took + writes)
                done.append(n * (reads + writes) / (took + writes))
            else:
                done.append(done[-1])
        return done
    for number in range(1, SLOTS_MAX + 1):
        n = min(number, engine.runs, engine.admits)
        write = engine.slowdown(n)
        read = write if engine.prompt_slowdown is None else engine.prompt_slowdown(n)
        done.append(n * (reads + writes) / (reads * read + writes * write))
    return done


def mean(tokens: tuple[float, float]) -> float:
    """Return the mean of a lognormal distribution, rounded up as tokens are."""
    return exp(tokens[0] + tokens[1] ** 2 / 2.0) + 0.5


def best(does: list[float]) -> int:
    """Return the smallest number within 1 in 100 of the most throughput."""
    most = max(does)
    return next(number for number, one in enumerate(does, 1) if one >= 0.99 * most)


def requests_to_find(slots: list[int], does: list[float]) -> int:
    """Return after how many answers the limit was near the best and stayed for a while.

    Near: with 0.9 of the throughput, and no more than 1.5 times the number. A while: as many
    answers as the number, 20 at least, in nine of ten of which the limit was near.
    """
    number, least = best(does), NEAR * max(does)
    near = [does[one - 1] >= least and one <= max(number + 1, 1.5 * number) for one in slots]
    while_ = max(20, number)
    for first in range(len(near) - while_):
        if near[first] and sum(near[first : first + while_]) >= 0.9 * while_:
            return first
    return len(near)


@dataclass(frozen=True)
class Result:
    """What became of one engine."""

    seed: int
    kind: str
    best: int
    found: int
    throughput: float
    first_byte: float
    requests: int
    per_slot: float
    change: str = ""


def compare(drawn: Drawn, per_slot: float = 0.0, *, noise: bool = False) -> Result:
    """Run what clients send, or a backlog, through the limit and through the best number."""
    does = throughputs(drawn)
    number = best(does)
    start = number if noise else drawn.start
    clients = max(number + 1, int(per_slot * number)) if per_slot else BACKLOG
    within, measured = max(60, WARM_ROUNDS * number), max(MEASURED, 6 * number)
    other = drawn.seed + OTHERS * noise
    first = Run(start, other, drawn.load, clients=clients, finds=not noise)
    second = Run(number, drawn.seed, drawn.load, clients=clients)
    ours, fixed = (figures_of(run, drawn.engine, within, measured) for run in (first, second))
    took = requests_to_find([one.slots for one in first.ended], does)
    return Result(
        drawn.seed, drawn.kind, number, first.slots,
        *ratios(ours, fixed), took, took / number,
    )  # fmt: skip


def figures_of(run: Run, engine: Server, within: int, measured: int) -> Figures:
    """Return what the same requests are like whatever the limit: those after the first ones."""
    run.serve(engine, within)
    throughput = figures(run.serve(engine, measured)).throughput
    first = within + run.sent_at_once  # what is sent after so many answers
    if run.sent_at_once:
        run.serve(engine, run.sent_at_once)
    some = [one for one in run.started[first : first + measured] if one.first_byte_s]
    waits_s = sorted(one.first_byte_s - one.arrived_s for one in some)
    return Figures(throughput, waits_s[int(0.95 * len(waits_s))])


def change(make: Callable[[int, float], Drawn], seed: int) -> Result:
    """Let an engine have other room, after a while; see how long it takes to follow."""
    drawn, rng = make(seed, 1.0), random.Random(-seed)
    factor = 2.0 ** rng.uniform(1.0, 2.0)
    if rng.random() < 0.5:
        factor = 1.0 / factor
    after = make(seed, factor)
    if after.knee == drawn.knee or not 1.0 <= drawn.knee * factor <= 120.0:
        after = make(seed, 1.0 / factor)
    does, number = throughputs(after), best(throughputs(drawn))
    run = Run(drawn.start, drawn.seed, drawn.load, finds=True)
    run.serve(drawn.engine, max(400, 6 * number))
    first = len(run.ended)
    run.serve(after.engine, max(1000, 12 * best(does)))
    took = requests_to_find([one.slots for one in run.ended[first:]], does)
    kind = "gained" if after.knee > drawn.knee else "lost"
    number = best(does)
    return Result(
        drawn.seed, drawn.kind, number, run.slots, 1.0, 1.0, took, took / number, kind
    )  # fmt: skip


def swing(drawn: Drawn) -> Result:
    """Let the engine's speed swing, as on a machine that others use as well."""
    number = best(throughputs(drawn))
    first, last = max(100, WARM_ROUNDS * number), max(MEASURED, 6 * number)
    done, found = [], 0
    for finds in (False, True):
        start, rng = drawn.start if finds else number, random.Random(drawn.seed)
        run = Run(start, drawn.seed, drawn.load, clients=2 * number, finds=finds)
        while len(run.ended) < first + last + 2 * number:
            factor = rng.lognormvariate(0.0, SWING)
            run.serve(slower(drawn.engine, factor), rng.randrange(*SWING_ANSWERS))
        some = run.started[first + 2 * number : first + last]
        waits_s = sorted(each.first_byte_s - each.arrived_s for each in some)
        took_s = run.ended[first + last].ended_s - run.ended[first].ended_s
        done.append(Figures(last / took_s, waits_s[int(0.95 * len(waits_s))]))
        found = run.slots
    return Result(
        drawn.seed, drawn.kind, number, found, *ratios(done[1], done[0]), 0, 0.0
    )  # fmt: skip


def slower(engine: Server, factor: float) -> Server:
    """Return one that takes so many times as long for everything."""
    reads = engine.prompt_slowdown or engine.slowdown
    return replace(
        engine,
        slowdown=lambda n: factor * engine.slowdown(n),
        prompt_slowdown=lambda n: factor * reads(n),
    )


def ratios(ours: Figures, fixed: Figures) -> tuple[float, float]:
    return (
        ours.throughput / fixed.throughput,
        ours.first_byte_p95_s / fixed.first_byte_p95_s,
    )


def read_trace(path: Path) -> list[Row]:
    """Return seconds since the last arrival, and tokens."""
    with path.open() as file:
        rows = [
            (datetime.fromisoformat(row["TIMESTAMP"][:26]), row) for row in csv.DictReader(file)
        ]
    return [
        ((at - last).total_seconds(), int(row["ContextTokens"]), int(row["GeneratedTokens"]))
        for (last, _), (at, row) in pairwise(rows)
    ]


def replay(drawn: Drawn, rows: list[Row], busy: float) -> Result:
    """Run a part of the trace through the limit and through the best number."""
    number = best(throughputs(drawn))
    count = min(len(rows), max(1200, 12 * number))
    first = random.Random(drawn.seed).randrange(len(rows) - count + 1)
    part = rows[first : first + count]
    full = Run(number, drawn.seed, drawn.load, iter([(0.0, p, o) for _, p, o in part]))
    capacity_s = full.serve(drawn.engine, count)[-1].ended_s
    scale = capacity_s / busy / sum(gap for gap, *_ in part)

    def arrivals() -> Iterator[Row]:
        at_s = 0.0
        for gap_s, prompt, output in part:
            at_s += gap_s * scale
            yield at_s, prompt, output

    ended, found = [], 0
    for finds in (False, True):
        run = Run(drawn.start if finds else number, drawn.seed, drawn.load, arrivals(), finds=finds)
        found = run.slots
        ended.append(run.serve(drawn.engine, count)[count // 4 :])
    felt = [sorted(one.first_byte_s - one.arrived_s for one in each) for each in ended]
    place = int(0.95 * len(felt[0]))
    fixed, ours = (figures(each) for each in ended)
    throughput, _ = ratios(ours, fixed)
    return Result(
        drawn.seed, drawn.kind, number, found, throughput,
        ours.first_byte_p95_s / fixed.first_byte_p95_s, 0,
        felt[1][place] / felt[0][place],
    )  # fmt: skip


def table(results: list[Result], last: str) -> str:
    """Return median and worst of each kind, and how many miss what they should."""
    lines = [
        f"{'':10}  throughput < {NEAR}    p95 first byte > {LATER}    requests > 60      {last}"
    ]
    for kind in NAMES:
        some = [one for one in results if kind in (one.kind, "all")]
        if not some:
            continue
        cells = []
        for name, worst, misses in (
            ("throughput", min, sum(one.throughput < NEAR for one in some)),
            ("first_byte", max, sum(one.first_byte > LATER for one in some)),
            ("requests", max, sum(one.requests > WITHIN for one in some)),
            ("per_slot", max, sum(one.requests > max(WITHIN, 3 * one.best) for one in some)),
        ):
            values = [getattr(one, name) for one in some]
            cells.append(f"{median(values):7.2f} {worst(values):7.2f} {misses:3}")
        lines.append(f"{kind:10}" + "  ".join(cells))
    return "\n".join(lines)


def anywhere(drawn: Drawn) -> Drawn:
    """Return it with a start between 2 and 255."""
    return replace(drawn, start=int(2.0 ** random.Random(7 * drawn.seed + 1).uniform(1.0, 8.0)))


def main() -> None:
    """Print the table, and write the results where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--in-turn", action="store_true")
    parser.add_argument("--clients", type=float, default=0.0)
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--starts", action="store_true")
    parser.add_argument("--changes", action="store_true")
    parser.add_argument("--swings", action="store_true")
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--busy", type=float, default=1.1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("-v", action="store_true")
    given = parser.parse_args()
    rows = read_trace(given.trace) if given.trace else None
    results = []
    make = in_turn if given.in_turn else plain if given.plain else draw
    for seed in range(given.seed, given.seed + given.engines):
        drawn = make(seed)
        drawn = anywhere(drawn) if given.starts else drawn
        if given.changes:
            results.append(change(make, seed))
        elif given.swings:
            results.append(swing(drawn))
        elif rows is not None:
            results.append(replay(drawn, rows, given.busy))
        else:
            results.append(compare(drawn, given.clients, noise=given.noise))
        if given.v:
            print(results[-1])
    last = "requests / number, > 60 and 3 x number" if rows is None else "p95 wait and first byte"
    for which in ("lost", "gained") if given.changes else ("",):
        print(which)
        print(table([one for one in results if one.change == which], last))
    if given.out:
        given.out.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
