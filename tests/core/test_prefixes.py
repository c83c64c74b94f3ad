"""The cache decides where: a prompt goes to the node that has computed its beginning before."""

from __future__ import annotations

import random
from collections import OrderedDict
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import pytest

from forebay.core import (
    Arrived,
    Cancelled,
    Finished,
    Inspected,
    NodeChanged,
    NodeRemoved,
    Options,
    Route,
    Scheduler,
    Ticked,
    Wait,
)
from forebay.core.actions import Describe
from forebay.core.nodes import has_room, would_open
from forebay.core.prefixes import PrefillTime

if TYPE_CHECKING:
    from forebay.core import Action, Event

SERVICE_S = 1.0


def two_nodes(slots: int = 1, **options: Any) -> Scheduler:
    """Return a scheduler with two nodes whose services take a second."""
    scheduler = Scheduler(Options(**options))
    for name in ("a", "b"):
        scheduler.handle(NodeChanged(name, slots=slots, models=("m",)), 0.0)
    for number in range(4):
        begins_s = number * SERVICE_S
        scheduler.handle(Arrived(f"warm{number}", "m", prompt_tokens=10), begins_s)
        scheduler.handle(Finished(f"warm{number}", True, 10, 10), begins_s + SERVICE_S)
    return scheduler


def prompt(name: str, *parts: int, tokens: int = 10_000, **more: Any) -> Arrived:
    """Return an arrival whose parts have that many tokens each: 2 s of prefill, unmeasured."""
    sizes = (tokens,) * len(parts)
    total = sum(sizes)
    return Arrived(name, "m", prompt_tokens=total, prefix=parts, prefix_tokens=sizes, **more)


def routed(actions: list[Action]) -> dict[str, Route]:
    return {action.id: action for action in actions if isinstance(action, Route)}


def test_a_free_node_with_the_longer_prefix_wins() -> None:
    scheduler = two_nodes(slots=4)
    first = routed(scheduler.handle(prompt("1", 1, 2), 10.0))["1"]
    assert first.cached_tokens == 0
    scheduler.handle(Finished("1"), 11.0)
    for number in range(2, 6):
        again = routed(scheduler.handle(prompt(str(number), 1, 2, 3), 12.0))[str(number)]
        assert again.node == first.node
        assert again.cached_tokens == (20_000 if number == 2 else 30_000)


def test_load_is_spread_where_a_cache_saves_less_than_a_turn() -> None:
    scheduler = two_nodes(slots=16)
    nodes = [
        routed(scheduler.handle(prompt(str(n), 1, tokens=50), 10.0))[str(n)].node for n in range(20)
    ]
    assert min(nodes.count("a"), nodes.count("b")) >= 7, "0.01 s are worth no pile"


def test_one_waits_for_a_cache_that_saves_more_than_the_wait() -> None:
    scheduler = two_nodes()
    node = routed(scheduler.handle(prompt("1", 1), 10.0))["1"].node
    (wait,) = scheduler.handle(prompt("2", 1, 2), 10.2)
    assert isinstance(wait, Wait), "though the other node is free"
    (told,) = scheduler.handle(Inspected("2"), 10.2)
    assert isinstance(told, Describe)
    assert (told.waits_for, told.cached_tokens, told.prompt_tokens) == (node, 10_000, 20_000)
    started = routed(scheduler.handle(Finished("1", True, 10_000, 10), 11.0))["2"]
    assert (started.node, started.cached_tokens) == (node, 10_000)


@pytest.mark.parametrize(("limit_s", "until_s"), [(60.0, 13.0), (4.0, 12.0)])
def test_nobody_waits_longer_than_elsewhere_it_would_take_nor_past_half_of_its_limit(
    limit_s: float, until_s: float
) -> None:
    """It would take 3 s where it is free: 2 s for the prompt, 1 s for the answer."""
    scheduler = two_nodes(wait_s_max=limit_s)
    node = routed(scheduler.handle(prompt("1", 1), 10.0))["1"].node
    scheduler.handle(prompt("2", 1), 10.0)
    assert scheduler.next_deadline_s() == pytest.approx(until_s, abs=0.01)
    assert not scheduler.handle(Ticked(), until_s - 0.1)
    assert routed(scheduler.handle(Ticked(), until_s + 0.01))["2"].node != node


@pytest.mark.parametrize("gone", ["offline", "draining", "removed"])
def test_who_waits_for_a_node_that_goes_starts_elsewhere_at_once(gone: Any) -> None:
    scheduler = two_nodes()
    node = routed(scheduler.handle(prompt("1", 1), 10.0))["1"].node
    scheduler.handle(prompt("2", 1), 10.0)
    event = NodeRemoved(node) if gone == "removed" else NodeChanged(node, 1, ("m",), state=gone)
    assert routed(scheduler.handle(event, 10.1))["2"].node != node


def test_others_pass_one_that_waits_for_a_cache() -> None:
    scheduler = two_nodes()
    node = routed(scheduler.handle(prompt("1", 1), 10.0))["1"].node
    scheduler.handle(prompt("2", 1), 10.0)
    other = routed(scheduler.handle(prompt("3", 3), 10.0))["3"]
    assert other.node != node
    assert isinstance(scheduler.handle(prompt("4", 4), 10.0)[0], Wait)
    assert "2" in routed(scheduler.handle(Finished("1"), 10.5)), "it keeps its place"


@pytest.mark.parametrize(
    ("options", "arrival"),
    [
        ({"enabled": False}, prompt("2", 1)),
        ({"queue_streams": False}, prompt("2", 1, stream=True)),
        ({}, prompt("2", 1, patient=True)),
        ({}, prompt("2", 1, tokens=1000)),
        ({}, prompt("2", 1, job=True)),
        ({"prefix_blocks": 0}, prompt("2", 1)),
    ],
)
def test_one_that_may_not_wait_or_gains_nothing_starts_at_once(
    options: dict[str, Any], arrival: Arrived
) -> None:
    scheduler = two_nodes(**options)
    scheduler.handle(prompt("1", 1), 10.0)
    assert "2" in routed(scheduler.handle(arrival, 10.0))


def test_only_so_many_wait_for_a_cache_as_are_served_in_the_time_it_saves() -> None:
    scheduler = two_nodes()
    scheduler.handle(prompt("1", 1), 10.0)
    scheduler.handle(prompt("2", 1), 10.0)
    assert "3" in routed(scheduler.handle(prompt("3", 1), 10.0)), "the second would wait for 2 s"


def test_what_is_not_used_is_forgotten() -> None:
    scheduler = two_nodes(slots=9, prefix_blocks=2)
    first = routed(scheduler.handle(prompt("1", 1), 10.0))["1"].node
    for number, part in enumerate((2, 3, 4, 5), 2):
        scheduler.handle(prompt(str(number), part, affinity="s"), 10.0)
    again = routed(scheduler.handle(prompt("9", 1), 10.0))["9"]
    assert again.cached_tokens == (10_000 if again.node == first else 0)


def test_the_time_of_a_prompt_token_is_measured() -> None:
    times, rng = PrefillTime(), random.Random(3)
    for _ in range(300):
        given, made = rng.randrange(20_000), rng.randrange(600)
        times.add(given, made, 0.05 + 0.0006 * given + 0.02 * made)
    assert times.token_s() == pytest.approx(0.0006, rel=0.1)


def test_a_slow_node_is_known_after_two_dozen_short_prompts() -> None:
    times, rng = PrefillTime(), random.Random(3)
    for _ in range(24):
        given, made = rng.randrange(200, 400), rng.randrange(10, 50)
        times.add(given, made, 0.005 * given + 0.02 * made)
    assert times.token_s() == pytest.approx(0.005, rel=0.4)


def test_the_time_of_a_prompt_token_stays_a_guess_where_all_requests_are_alike() -> None:
    times = PrefillTime()
    for _ in range(300):
        times.add(1000, 0, 0.0)
    assert times.token_s() == pytest.approx(0.0002)


@pytest.mark.parametrize("counts", ["nothing", "three times as many"])
def test_prompts_are_measured_in_our_own_tokens_whatever_a_node_counts(counts: str) -> None:
    scheduler, rng, now_s = two_nodes(), random.Random(3), 10.0
    for number in range(400):
        made, tokens = rng.randrange(600), rng.randrange(20_000)
        told = -1 if counts == "nothing" else 3 * tokens
        scheduler.handle(prompt(f"w{number}", 1000 + number, tokens=tokens), now_s)
        now_s += 0.05 + 0.0006 * tokens + 0.02 * made
        scheduler.handle(Finished(f"w{number}", True, told, made), now_s)
    scheduler.handle(prompt("1", 1, tokens=50_000), now_s)
    scheduler.handle(prompt("2", 1, tokens=50_000), now_s)
    held_until_s = scheduler.next_deadline_s()
    assert held_until_s is not None
    assert held_until_s - now_s == pytest.approx(50_000 * 0.0006, rel=0.1), "what it saves"


def test_nobody_waits_for_the_little_more_of_a_long_prompt_that_a_busy_node_has() -> None:
    def asked(name: str, *sizes: int) -> Arrived:
        parts = tuple(range(1, len(sizes) + 1))
        return Arrived(name, "m", prompt_tokens=sum(sizes), prefix=parts, prefix_tokens=sizes)

    scheduler = Scheduler(Options())
    for node in ("a", "b"):
        scheduler.handle(NodeChanged(node, slots=1, models=("m",)), 0.0)
    for name in ("1", "2"):  # both compute what is long, at 0.2 ms a token
        assert name in routed(scheduler.handle(asked(name, 10_000), 0.0))
    for name in ("1", "2"):
        scheduler.handle(Finished(name, True, -1, 1), 2.0)
    now_s = 2.0
    for number in range(100):  # one of them computes the little more, and turns are short now
        scheduler.handle(asked(f"w{number}", 10_000, 100), now_s)
        now_s += 0.004
        scheduler.handle(Finished(f"w{number}", True, -1, 1), now_s)
    first = routed(scheduler.handle(asked("3", 10_000, 100), now_s))["3"]
    second = routed(scheduler.handle(asked("4", 10_000, 100), now_s))["4"]
    assert (first.cached_tokens, second.cached_tokens) == (10_100, 10_000)


class Engine:
    """A node's prompt cache: the least recently used parts are forgotten."""

    def __init__(self, parts_max: int) -> None:
        self._max = parts_max
        self._parts: OrderedDict[int, None] = OrderedDict()

    def compute(self, parts: tuple[int, ...]) -> int:
        """Return how many parts were there already."""
        found = next((n for n, one in enumerate(parts) if one not in self._parts), len(parts))
        for part in parts:
            self._parts[part] = None
            self._parts.move_to_end(part)
        while len(self._parts) > self._max:
            self._parts.popitem(last=False)
        return found


PART_TOKENS = 512
NAMES = ("a", "b", "c")


def conversations(seed: int, count: int) -> list[tuple[float, tuple[int, ...], int]]:
    """Return turns of many conversations: when, the parts of the prompt, tokens of the answer."""
    rng = random.Random(seed)
    turns, part = [], 1
    for _ in range(count):
        at_s, parts = rng.random() * count, [rng.randrange(-5, 0)]
        for _ in range(rng.randrange(1, 9)):
            new = rng.randrange(1, 5)
            parts += range(part, part + new)
            part += new
            turns.append((at_s, tuple(parts[:64]), rng.randrange(10, 300)))
            at_s += rng.expovariate(1 / 20)
    return sorted(turns)


class Replay:
    """Turns of conversations, in virtual time, on nodes with caches."""

    def __init__(
        self, turns: list[tuple[float, tuple[int, ...], int]], nodes: int, slots: int, parts: int
    ) -> None:
        options = Options(max_size=10**6, wait_s_max=1e9, prefix_blocks=parts)
        self.scheduler = Scheduler(options)
        self._turns = turns
        self._engines = {f"n{number}": Engine(parts) for number in range(nodes)}
        for name in self._engines:
            self.scheduler.handle(NodeChanged(name, slots=slots, models=("m",)), 0.0)
        self._ends: list[tuple[float, str]] = []
        self.waits: list[float] = []
        self.hits = self.total = 0

    def run(self, *, use: bool) -> tuple[float, float]:
        """Return the share of parts that were cached where they ran, and the p95 of the waits."""
        for number, (at_s, parts, _) in enumerate(self._turns):
            self._run_until(at_s)
            sizes = (PART_TOKENS,) * len(parts)
            arrival = Arrived(
                str(number),
                "m",
                user=f"u{number % 9}",
                prompt_tokens=sum(sizes),
                prefix=parts if use else (),
                prefix_tokens=sizes if use else (),
            )
            self._perform(self.scheduler.handle(arrival, at_s), at_s)
        self._run_until(1e12)
        assert len(self.waits) == len(self._turns), "nobody is forgotten"
        self.waits.sort()
        return self.hits / self.total, self.waits[int(0.95 * (len(self.waits) - 1))]

    def _perform(self, actions: list[Action], now_s: float) -> None:
        for route in routed(actions).values():
            _, parts, output = self._turns[int(route.id)]
            found = self._engines[route.node].compute(parts)
            self.hits += found
            self.total += len(parts)
            self.waits.append(route.waited_s)
            computed = PART_TOKENS * (len(parts) - found)
            heappush(self._ends, (now_s + 0.02 + 0.0003 * computed + 0.015 * output, route.id))

    def _run_until(self, limit_s: float) -> None:
        scheduler, ends = self.scheduler, self._ends
        while True:
            due_s = scheduler.next_deadline_s()
            at_s = min(limit_s, due_s or limit_s, ends[0][0] if ends else limit_s)
            if at_s >= limit_s:
                return
            if ends and ends[0][0] == at_s:
                _, ticket = heappop(ends)
                _, parts, output = self._turns[int(ticket)]
                ended = Finished(ticket, True, PART_TOKENS * len(parts), output)
                self._perform(scheduler.handle(ended, at_s), at_s)
            else:
                self._perform(scheduler.handle(Ticked(), at_s), at_s)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("slots", [4, 8, 16])
def test_caches_of_several_nodes_are_used_nearly_as_well_as_one_of_their_size(
    seed: int, slots: int
) -> None:
    turns = conversations(seed, 250)
    alone, _ = Replay(turns, 1, 4 * slots, 4 * 600).run(use=False)
    least_loaded, waits_without_s = Replay(turns, 4, slots, 600).run(use=False)
    found, waits_s = Replay(turns, 4, slots, 600).run(use=True)
    assert found >= 0.8 * alone > 1.2 * least_loaded
    assert waits_s <= waits_without_s


def some_event(rng: random.Random, number: int, scheduler: Scheduler) -> Event:
    """Return something that may happen now."""
    entries = scheduler._book.entries.values()
    running = [entry.id for entry in entries if entry.state == "running"]
    waiting = [entry.id for entry in entries if entry.state == "waiting"]
    kind = rng.randrange(12)
    if kind < 4 and running:
        return Finished(rng.choice(running), True, 500, 50)
    if kind == 4 and waiting:
        return Cancelled(rng.choice(waiting))
    if kind == 5:
        state: Any = rng.choice(["online", "online", "offline", "draining"])
        return NodeChanged(rng.choice(NAMES), slots=2, models=("m", "n"), state=state)
    parts = tuple(range(rng.randrange(3) * 100, 300))[: rng.randrange(1, 5)]
    sizes = (9000,) * len(parts)
    model, user = rng.choice("mn"), rng.choice("uvw")
    return Arrived(str(number), model, user=user, prefix=parts, prefix_tokens=sizes)


def check_holds(scheduler: Scheduler, now_s: float) -> int:
    """Check what must hold after every step; return how many wait for a cache."""
    book = scheduler._book
    holds = {entry for entry in book.entries.values() if entry.hold is not None}
    assert {entry for node in book.cluster.nodes.values() for entry in node.held} == holds
    assert all(one.state == "waiting" and one.hold and one.hold.until_s >= now_s for one in holds)
    others = [e for e in book.entries.values() if e.state == "waiting" and e not in holds]
    free = [
        node.name
        for node in book.cluster.nodes.values()
        if has_room(node) and would_open(node, now_s)
    ]
    assert not [e.id for e in others if any(name in e.queue.lane.nodes for name in free)]
    return len(holds)


def test_a_slot_stays_free_only_for_a_hold_and_nothing_of_a_hold_remains() -> None:
    assert sum(holds_of_a_day(seed) for seed in range(20)), "some were held"


def holds_of_a_day(seed: int) -> int:
    """Play random events, checked after each; return how many holds were seen."""
    rng = random.Random(seed)
    scheduler = Scheduler(Options(max_size=30, wait_s_max=20.0, prefix_blocks=20))
    now_s, held = 0.0, 0
    for name in NAMES:
        scheduler.handle(NodeChanged(name, slots=2, models=("m", "n")), now_s)
    for number in range(600):
        now_s += rng.expovariate(3.0)
        while (due_s := scheduler.next_deadline_s()) is not None and due_s <= now_s:
            scheduler.handle(Ticked(), due_s)
        scheduler.handle(some_event(rng, number, scheduler), now_s)
        held += check_holds(scheduler, now_s)
    for name in NAMES:
        scheduler.handle(NodeChanged(name, slots=50, models=("m", "n")), now_s)
    while (due_s := scheduler.next_deadline_s()) is not None:
        scheduler.handle(Ticked(), due_s)
    book = scheduler._book
    for entry in list(book.entries.values()):
        scheduler.handle(Finished(entry.id), now_s + 99.0)
    assert not book.entries
    assert not any(node.held for node in book.cluster.nodes.values())
    return held
