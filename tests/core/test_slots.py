"""Slots that find themselves: the search, what lowers them at once, and what is no evidence."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from forebay.core import (
    Cancelled,
    Finished,
    Lent,
    NodeChanged,
    NodeRested,
    Observed,
    Resumed,
    Returned,
    SlotsChanged,
    Snapshot,
)
from forebay.core.events import Arrived
from forebay.core.pools import split_pools
from forebay.core.records import Sample
from forebay.core.slots import SLOTS_MAX, good_enough, measure, next_number
from harness.shared_speed import LOAD, Load, Run, Server, flat, queueing, refusing, soft, thrashing

from .rig import Rig

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.core import Action


QUIET = replace(LOAD, luck=0.02)


def found(engine: Server, seed: int = 1, load: Load = QUIET, start: int = 4, **more: int) -> Run:
    """Let an engine be searched by a crowd that always has more to ask, unless said."""
    run = Run(start, seed, load, finds=True, clients=more.get("clients", 300))
    run.serve(engine, more.get("answers", 900))
    return run


class Slots(Rig):
    """A node `n` whose slots are found from 4 on, and requests of two users."""

    def __init__(self, start: int = 4, **more: str) -> None:
        super().__init__(max_size=10_000)
        more.setdefault("slots_kind", "found")
        self.node("n", start, **more)
        self.told: list[SlotsChanged] = []
        self.sent = 0
        self.running: list[str] = []

    def ask(self, count: int, users: str = "ab", model: str = "m") -> None:
        for _ in range(count):
            self.sent += 1
            name = f"{users[self.sent % len(users)]}{self.sent}"
            self.note(self.give_arrival(name, model, prompt_tokens=100))

    def note(self, actions: list[Action]) -> None:
        self.told += [action for action in actions if isinstance(action, SlotsChanged)]
        self.running += self.started(actions)

    def end(self, ran_s: float, model: str = "m") -> None:
        """End the oldest that runs; another is asked before."""
        self.ask(1, model=model)
        end = Finished(self.running.pop(0), output_tokens=50, first_byte_s=ran_s / 10, ran_s=ran_s)
        self.note(self.give(end))

    def serve(self, count: int, each_s: float = 1.0, knee: int = SLOTS_MAX) -> None:
        """Answer so many, in turn, of an engine that slows down beyond so many at once."""
        for _ in range(count):
            running = len(self.running)
            ran_s = each_s * max(1.0, running / knee)
            self.now_s += ran_s / running
            self.end(ran_s)

    @property
    def slots(self) -> int:
        return self.look().nodes[0].slots

    @property
    def reason(self) -> str:
        return self.look().nodes[0].slots_reason


# -- the search


@pytest.mark.parametrize("knee", [1, 2, 3, 5, 8, 13, 24, 48])
@pytest.mark.parametrize("kind", [flat, thrashing, queueing, refusing])
def test_a_search_finds_about_as_many_as_an_engine_runs_well(
    kind: Callable[[int], Server], knee: int
) -> None:
    engine = kind(knee)
    run = found(engine, load=QUIET)
    does = [min(n, engine.runs, engine.admits) / engine.slowdown(n) for n in range(1, 257)]
    assert does[run.slots - 1] >= 0.87 * max(does), run.reasons
    assert run.slots <= max(knee + 4, 1.6 * knee), run.reasons


def test_an_engine_that_says_how_many_wait_inside_is_believed() -> None:
    run = found(replace(queueing(5), tells=True), load=replace(QUIET, output_token_s=0.2))
    assert run.slots == 5
    assert any("waited inside the node" in reason for reason in run.reasons)


def test_slots_grow_while_a_doubling_gains_enough_on_an_engine_that_is_slower_from_the_first() -> (
    None
):
    run = found(soft(10), clients=200)
    assert 20 <= run.slots <= 80


@pytest.mark.parametrize("start", [1, 8, 60, 256])
def test_a_search_may_begin_anywhere(start: int) -> None:
    assert 9 <= found(flat(10), start=start, answers=1500).slots <= 16


@pytest.mark.parametrize(("knee", "clients"), [(1, 2), (1, 3), (2, 6), (3, 12)])
def test_few_clients_are_enough_to_see_that_fewer_do_as_well(knee: int, clients: int) -> None:
    assert found(thrashing(knee), clients=clients).slots <= knee + 1


def test_a_node_that_is_hardly_used_keeps_the_number_it_began_with() -> None:
    core = Slots(4)
    for wave in range(80):
        core.ask(1 + wave % 3)
        while core.running:
            core.now_s += 1.0
            name = core.running.pop(0)
            core.note(core.give(Finished(name, output_tokens=50, first_byte_s=0.1, ran_s=0.5)))
    assert core.told == []


def test_half_of_the_best_and_more_is_not_enough() -> None:
    assert good_enough({1: 1.0, 2: 1.9, 4: 2.0}) == 2
    assert good_enough({4: 4.0, 8: 6.0, 16: 6.0}) == 8
    assert good_enough({4: 4.0, 8: 4.0, 16: 3.0}) == 4


def test_two_and_four_are_tried_unless_clearly_worse() -> None:
    assert next_number({1: 565.0}, 256) == 2
    assert next_number({1: 565.0, 2: 573.0}, 256) == 4
    assert next_number({1: 1.0, 2: 0.7}, 256) is None
    assert next_number({4: 4.0, 8: 8.0}, 8) is None


def test_what_requests_cost_is_learned_for_each_model_and_size() -> None:
    def sample(model: str, prompt: int, output: int, slower: float) -> Sample:
        first_s, rest_s = 0.1 + 0.001 * prompt, 0.02 * output
        factor = slower * (5.0 if model == "large" else 1.0)
        times_s = factor * first_s, factor * (first_s + rest_s)
        return Sample(model, "u", prompt, output, *times_s, running=4)

    sizes = [(100 + 37 * n % 900, 10 + 13 * n % 90) for n in range(16)]
    kinds = ["large" if n % 3 else "small" for n in range(16)]
    rounds = {
        slots: [sample(kind, *size, slower) for kind, size in zip(kinds, sizes, strict=True)]
        for slots, slower in ((4, 1.0), (8, 1.5))
    }
    paces = measure(rounds)
    assert paces[8].stretch() / paces[4].stretch() == pytest.approx(1.5, rel=0.02)
    assert paces[8].waiting(paces[4]) == 0.0


# -- holding a number


@pytest.mark.parametrize("kind", [flat, thrashing, queueing])
@pytest.mark.parametrize("after", [3, 6])
def test_lost_room_is_noticed_and_followed(kind: Callable[[int], Server], after: int) -> None:
    run = found(kind(16))
    run.serve(kind(after), 600)
    assert run.slots <= max(after + 1, 1.6 * after), run.reasons


@pytest.mark.parametrize("kind", [flat, refusing])
def test_more_room_is_found_by_rounds_an_eighth_higher(kind: Callable[[int], Server]) -> None:
    run = found(kind(3))
    run.serve(kind(12), 900)
    assert 11 <= run.slots <= 19, run.reasons


def test_rounds_of_more_that_gain_nothing_are_rare_and_taken_back() -> None:
    run = found(flat(8), answers=4000)
    late = [one for one in run.ended[1000:] if one.slots > 16]
    assert late == []


def test_an_engine_that_is_slower_at_any_number_keeps_its_slots() -> None:
    run = found(flat(8))
    before = run.slots
    run.serve(Server(lambda n: 2.0 * max(1.0, n / 8)), 600)
    assert 7 <= run.slots <= max(before, 13), run.reasons


# -- down at once


def test_a_refusal_takes_one_off_and_says_why() -> None:
    core = Slots(4)
    core.note(core.give(NodeRested("n", 1.0)))
    assert (core.slots, [one.slots for one in core.told]) == (3, [3])
    assert core.reason == core.told[0].reason == "the node refused a request as one too many"


def test_refusals_of_what_was_only_tried_let_the_node_rest_for_a_moment_only() -> None:
    core = Slots(4)  # which is the first number of a search
    core.give_rest("n", 30.0)
    core.give_rest("n", 30.0)
    assert core.slots == 2
    assert core.core.next_deadline_s() == pytest.approx(0.1)
    core.now_s += 5.0
    core.give_rest("n", 30.0)  # which nobody asked for
    assert core.core.next_deadline_s() == pytest.approx(35.0)


def test_of_several_time_outs_at_once_the_first_takes_a_quarter_off() -> None:
    core = Slots(8)
    core.ask(8)
    core.now_s += 30.0
    for name in core.running[:3]:
        core.note(core.give(Returned(name, why="timed_out")))
    assert [one.slots for one in core.told] == [6]


def test_a_time_out_of_a_request_that_has_itself_to_blame_is_none_of_the_nodes() -> None:
    core = Slots(8)
    core.ask(8)
    core.now_s += 30.0
    core.give(Returned(core.running[0], why="timed_out", strike=True))
    core.give(Finished(core.running[1], ok=False, why="timed_out", strike=True))
    core.give(Finished(core.running[2], ok=False, why="failed"))
    assert core.slots == 8


def test_what_waits_inside_by_the_engines_own_count_comes_off_once() -> None:
    core = Slots(8)
    core.ask(8)
    core.note(core.give(NodeRested("n", 0.0, waiting=3)))
    assert (core.slots, core.reason) == (5, "3 of the requests waited inside the node")
    core.note(core.give(NodeRested("n", 0.0, waiting=3)))  # the same: eight are still there
    assert core.slots == 5


# -- what is no evidence


def test_cancelled_and_failed_requests_are_no_samples() -> None:
    core = Slots(4)
    core.ask(8)
    for turn in range(80):
        core.now_s += 1.0
        core.ask(1)
        name = core.running.pop(0)
        end = Cancelled(name) if turn % 2 else Finished(name, ok=False, ran_s=1.0)
        core.note(core.give(end))
    assert core.told == []


def test_one_user_alone_moves_nothing_where_another_is_there() -> None:
    core = Slots(4)
    core.ask(1, "b")
    core.ask(7, "a")
    (other,) = [name for name in core.running if name[0] == "b"]
    for _ in range(30):
        core.now_s += 0.25
        core.ask(1, "a")
        name = next(one for one in core.running if one != other)
        core.running.remove(name)
        core.note(core.give(Finished(name, output_tokens=50, first_byte_s=0.1, ran_s=1.0)))
    assert core.told == []


def test_a_request_that_waited_for_its_model_is_no_sample() -> None:
    core = Rig()
    core.node("n", 1, "a", "b", loaded=("a",), slots_kind="found")
    for turn in range(120):
        core.now_s += 10.0
        core.start(f"u{turn}", "ab"[turn % 2])
        core.now_s += 5.0
        core.finish(f"u{turn}", output_tokens=5, first_byte_s=4.0, ran_s=5.0)
    assert core.look().nodes[0].slots == 1


@pytest.mark.parametrize(("answers", "changes"), [(20, False), (200, True)])
def test_a_model_that_was_not_there_moves_nothing_before_it_is_all_there_is(
    answers: int, changes: bool
) -> None:
    core = Slots(4)
    core.node("n", 4, "m", "slow", slots_kind="found")
    core.ask(12)
    core.serve(600, knee=4)
    before = len(core.told)
    while core.running:
        core.note(core.give(Cancelled(core.running.pop())))
    core.ask(8, model="slow")
    for _ in range(answers):
        core.now_s += 1.0
        core.end(60.0, model="slow")
    assert (len(core.told) > before) is changes


def test_what_ran_on_lent_slots_counts_where_the_limit_was_reached() -> None:
    for most, changes in ((3, False), (4, True)):
        core = Slots(4)
        core.give(Lent("n", 4))
        for number in range(40):
            core.now_s += 1.0
            name = f"{'ab'[number % 2]}{number}"
            arrival = Arrived(name, "m", user=name[0], prompt_tokens=100)
            core.give(Resumed(arrival, node="n", ran_s=0.5, attempt=1, lent=True))
            end = Finished(name, True, 100, 50, first_byte_s=0.1, ran_s=0.5, count=9, most=most)
            core.note(core.give(end))
        assert bool(core.told) is changes


# -- who says how many


def test_the_engines_own_number_is_where_to_begin_and_the_most_there_are() -> None:
    core = Slots(6, slots_kind="named")
    core.ask(40)
    core.serve(200)
    assert (core.slots, core.told) == (6, [])
    core.give_rest("n", 0.0)
    core.give_rest("n", 0.0)
    assert core.slots == 4
    core.serve(2000)
    assert core.slots == 6


def test_another_number_of_the_engine_counts_at_once() -> None:
    core = Slots(6, slots_kind="named")
    core.node("n", 3, slots_kind="named")
    assert (core.slots, core.reason) == (3, "the node says that it runs 3 at once")


@pytest.mark.parametrize("kind", ["fixed", "lent"])
def test_a_number_that_others_set_stays_as_it_is(kind: str) -> None:
    core = Slots(4, slots_kind=kind)
    core.ask(40)
    core.serve(300)
    core.give(Returned(core.running[0], why="timed_out"))
    assert (core.slots, core.told, core.reason) == (4, [], "")


def test_what_was_found_is_kept_while_a_node_comes_back_with_a_single_slot() -> None:
    core = Slots(4)
    core.ask(60)
    core.serve(200, knee=16)
    before = core.slots
    assert before > 8
    core.node("n", 1, slots_kind="fixed")
    assert core.slots == 1
    core.node("n", 4, slots_kind="found")
    assert core.slots == before


# -- whatever happens


@pytest.mark.parametrize("seed", range(24))
def test_every_change_is_told_once_with_a_reason_and_stays_within_the_bounds(seed: int) -> None:
    knee = round(2.0 ** Random(seed).uniform(0.5, 6.3))
    server = replace((flat, thrashing, queueing, refusing, soft)[seed % 5](knee), tells=seed > 12)
    run = Run(4, seed, finds=True, clients=2 * knee)
    number = run.slots
    for _ in range(60):
        run.serve(server, 10)
        assert 1 <= run.slots <= SLOTS_MAX
        (picture,) = run.engine.scheduler.handle(Observed(), run.engine.now_s())
        assert isinstance(picture, Snapshot)
        assert picture.nodes[0].slots == run.slots
    for line in run.reasons:
        told, _, reason = line.partition(", ")
        changed = int(told.partition(": ")[2])
        assert changed != number
        assert len(reason) > 10
        number = changed


def test_models_with_a_pool_of_their_own_are_a_node_of_their_own() -> None:
    change = NodeChanged(
        "n", 4, ("llama", "nomic-embed-text", "bge-m3"), loaded=("llama", "bge-m3")
    )
    own, embeds, rest = split_pools(change, {"nomic-*": 8, "*-m3": 2})
    assert (own.name, own.slots, own.models, own.loaded) == ("n", 4, ("llama",), ("llama",))
    assert (embeds.name, embeds.slots, embeds.models) == ("n#nomic-*", 8, ("nomic-embed-text",))
    assert (rest.name, rest.models, rest.loaded, rest.slots_kind) == (
        "n#*-m3",
        ("bge-m3",),
        None,
        "fixed",
    )
    assert split_pools(change, {}) == [change]


def test_an_embedding_never_waits_behind_a_chat() -> None:
    core = Rig()
    for change in split_pools(NodeChanged("n", 1, ("llama", "embed")), {"embed": 2}):
        core.give(change)
    core.start("a1", "llama")
    core.wait("a2", "llama")
    assert core.start("b1", "embed").node == core.start("b2", "embed").node == "n#embed"
    core.wait("b3", "embed")
