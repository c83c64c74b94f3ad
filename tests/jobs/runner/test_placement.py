"""Which types run, where, and who gives way: the decision, and its bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.jobs.runner.placement import ROUNDING_GB, Active, Gpu, Placement, Start, Waiting, plan

if TYPE_CHECKING:
    import random

CARD = [Gpu(0, 8.0)]
PAIR = [Gpu(0, 8.0), Gpu(1, 8.0)]


def names(made: Placement) -> list[str]:
    return [start.name for start in made.starts]


def test_the_deepest_queue_starts_first_where_one_fits() -> None:
    waiting = [Waiting("a", 2, 5.0, 9.0), Waiting("b", 7, 5.0, 0.0)]
    assert plan(waiting, [], CARD, 300.0) == Placement((Start("b", 0),), frozenset())


def test_two_small_cards_do_not_take_one_large_type_beside_another() -> None:
    waiting = [Waiting("small", 9, 1.0, 0.0), Waiting("large", 5, 12.0, 0.0)]
    assert names(plan(waiting, [], PAIR, 300.0)) == ["small"]


def test_each_type_is_placed_where_the_least_is_left_over() -> None:
    gpus = [Gpu(0, 24.0), Gpu(1, 8.0)]
    waiting = [Waiting("a", 9, 6.0, 0.0), Waiting("b", 5, 20.0, 0.0), Waiting("c", 1, 2.0, 0.0)]
    assert plan(waiting, [], gpus, 300.0).starts == (Start("a", 1), Start("b", 0), Start("c", 1))


def test_a_type_larger_than_every_card_runs_alone() -> None:
    huge = Waiting("huge", 9, 80.0, 0.0)
    made = plan([huge, Waiting("a", 5, 1.0, 0.0), Waiting("free", 1, 0.0, 0.0)], [], PAIR, 300.0)
    assert made.starts == (Start("huge", None), Start("free", None))
    running = [Active("huge", 80.0, None)]
    assert plan([Waiting("a", 5, 1.0, 0.0)], running, PAIR, 300.0) == Placement((), frozenset())


def test_a_type_larger_than_every_card_waits_for_an_empty_one_and_then_others_leave() -> None:
    running = [Active("a", 1.0, 0), Active("b", 1.0, 1), Active("free", 0.0, None)]
    huge, small = Waiting("huge", 9, 80.0, 0.0), Waiting("c", 1, 1.0, 0.0)
    assert names(plan([huge, small], running, PAIR, 300.0)) == ["c"]
    made = plan([Waiting("huge", 9, 80.0, 300.0), small], running, PAIR, 300.0)
    assert made == Placement((), frozenset({"a", "b"}))


def test_without_a_gpu_there_is_no_limit() -> None:
    waiting = [Waiting(name, 1, 500.0, 0.0) for name in "abc"]
    assert names(plan(waiting, [], [], 300.0)) == ["a", "b", "c"]


def test_an_overdue_type_goes_before_deeper_ones() -> None:
    waiting = [Waiting("deep", 500, 5.0, 10.0), Waiting("late", 1, 5.0, 300.0)]
    assert names(plan(waiting, [], CARD, 300.0)) == ["late"]


def test_for_an_overdue_type_the_fewest_give_way() -> None:
    running = [Active("a", 3.0, 0), Active("b", 4.0, 0), Active("c", 7.0, 1)]
    waiting = [Waiting("late", 1, 7.0, 301.0), Waiting("tiny", 99, 1.0, 0.0)]
    made = plan(waiting, running, PAIR, 300.0)
    assert made == Placement((Start("tiny", 0),), frozenset({"c"}))


def test_nobody_starts_on_a_gpu_that_is_promised() -> None:
    running = [Active("a", 2.5, 0), Active("b", 2.5, 0)]
    waiting = [Waiting("late", 1, 8.0, 301.0), Waiting("tiny", 99, 2.0, 0.0)]
    assert plan(waiting, running, CARD, 300.0) == Placement((), frozenset({"a", "b"}))


def test_those_that_fit_beside_leave_nobody_asked() -> None:
    made = plan([Waiting("late", 1, 3.0, 301.0)], [Active("a", 5.0, 0)], CARD, 300.0)
    assert made == Placement((Start("late", 0),), frozenset())


def test_decimal_fractions_that_add_up_fit() -> None:
    made = plan([Waiting("b", 1, 0.2, 0.0)], [Active("a", 0.1, 0)], [Gpu(0, 0.3)], 300.0)
    assert names(made) == ["b"]


budgets = st.sampled_from([0.0, 0.5, 2.5, 5.0, 7.5, 8.0, 12.0, 40.0])
gpu_lists = st.lists(st.sampled_from([4.0, 8.0, 24.0]), max_size=3).map(
    lambda sizes: [Gpu(index, size) for index, size in enumerate(sizes)]
)
waiting_lists = st.lists(
    st.tuples(st.integers(1, 500), budgets, st.sampled_from([0.0, 5.0, 299.0, 300.0, 900.0])),
    max_size=8,
).map(lambda given: [Waiting(f"w{n}", *one) for n, one in enumerate(given)])


def reached(waiting: list[Waiting], gpus: list[Gpu], rng: random.Random) -> list[Active]:
    """A set of active types that the planner itself led to."""
    made = plan(waiting, [], gpus, 300.0)
    sizes = {one.name: one.budget_gb for one in waiting}
    kept = [start for start in made.starts if rng.random() < 0.7]
    return [Active(f"a{start.name}", sizes[start.name], start.gpu) for start in kept]


def check_memory(active: list[Active], gpus: list[Gpu]) -> None:
    """No GPU is over, except that a type may run alone."""
    if not gpus:
        return
    needing = [one for one in active if one.budget_gb > 0]
    if any(one.gpu is None for one in needing):
        assert len(needing) == 1
    for gpu in gpus:
        held_gb = sum(one.budget_gb for one in needing if one.gpu == gpu.index)
        assert held_gb <= gpu.size_gb + 10 * ROUNDING_GB


@settings(deadline=None)
@given(waiting_lists, waiting_lists, gpu_lists, st.randoms(use_true_random=False))
def test_memory_is_never_promised_twice_and_order_of_the_input_is_no_matter(
    before: list[Waiting], waiting: list[Waiting], gpus: list[Gpu], rng: random.Random
) -> None:
    active = reached(before, gpus, rng)
    check_memory(active, gpus)
    made = plan(waiting, active, gpus, 300.0)
    sizes = {one.name: one.budget_gb for one in waiting}
    after = [*active, *(Active(start.name, sizes[start.name], start.gpu) for start in made.starts)]
    check_memory(after, gpus)
    assert made.give_way <= {one.name for one in active if one.budget_gb > 0}
    shuffled, around = list(waiting), list(active)
    rng.shuffle(shuffled)
    rng.shuffle(around)
    assert plan(shuffled, around, gpus[::-1], 300.0) == made


@settings(deadline=None)
@given(waiting_lists, gpu_lists)
def test_something_runs_whenever_nothing_did(waiting: list[Waiting], gpus: list[Gpu]) -> None:
    made = plan(waiting, [], gpus, 300.0)
    assert bool(made.starts) == bool(waiting)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(budgets, st.integers(1, 500)), min_size=1, max_size=6),
    gpu_lists,
    st.sampled_from([0, 3, 20]),
    st.randoms(use_true_random=False),
)
def test_no_type_waits_longer_than_the_bound(
    kinds: list[tuple[float, int]], gpus: list[Gpu], wait_s_max: int, rng: random.Random
) -> None:
    """Queues that never empty, jobs of up to `longest` seconds, for 400 virtual seconds."""
    longest = 7
    since = {f"t{n}": 0 for n in range(len(kinds))}
    size = {f"t{n}": kind[0] for n, kind in enumerate(kinds)}
    depth = {f"t{n}": kind[1] for n, kind in enumerate(kinds)}
    active: dict[str, Active] = {}
    ends: dict[str, int] = {}
    giving_way: frozenset[str] = frozenset()
    for now in range(400):
        for name in [name for name, at in ends.items() if at <= now]:
            if name in giving_way:
                del active[name], ends[name]
                since[name] = now
            else:
                ends[name] = now + rng.randint(1, longest)
        waiting = [Waiting(n, depth[n], size[n], now - at) for n, at in since.items()]
        for one in waiting:
            assert one.waited_s <= wait_s_max + len(kinds) * longest, one
        made = plan(waiting, list(active.values()), gpus, wait_s_max)
        giving_way = made.give_way
        for start in made.starts:
            del since[start.name]
            active[start.name] = Active(start.name, size[start.name], start.gpu)
            ends[start.name] = now + rng.randint(1, longest)
        check_memory(list(active.values()), gpus)
