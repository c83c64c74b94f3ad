"""What clients have of the slots that are found: they count from when they ask, not from a slot."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import pytest

from bench.slots.__main__ import ALIKE, figures_of
from bench.slots.engine import LOAD, Engine, Load, Run, flat, queueing, refusing, soft, thrashing
from forebay.nodes.slot_limit import SlotLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.slots.engine import Request

MEASURED = 400


def served(engine: Engine, clients: int, requests: int, seed: int = 1) -> list[Request]:
    """Return the answers that so many clients get, of an engine whose slots have to be found."""
    return Run(SlotLimit(), seed, ALIKE, clients=clients).serve(engine, requests)


@pytest.mark.parametrize("per_slot", [1.5, 2, 4])
@pytest.mark.parametrize("knee", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("make", [flat, thrashing, queueing, refusing])
def test_after_60_requests_clients_are_served_as_at_the_best_number(
    make: Callable[[int], Engine], knee: int, per_slot: float
) -> None:
    """All requests are alike, so that each that waits longer shows in the p95."""
    clients, found = max(knee + 1, int(per_slot * knee)), []
    for seed in range(3):
        runs = [Run(one, seed, ALIKE, clients=clients) for one in (SlotLimit(), knee)]
        ours, fixed = (figures_of(run, make(knee), 60, MEASURED) for run in runs)
        throughput = ours.throughput / fixed.throughput
        found.append((throughput, ours.first_byte_p95_s / fixed.first_byte_p95_s))
    assert median(throughput for throughput, _ in found) >= 0.95
    assert median(first_byte for _, first_byte in found) <= 1.1


@pytest.mark.parametrize("knee", [2, 4, 8])
def test_so_many_clients_that_all_get_slower_get_fewer_slots_than_they_are(knee: int) -> None:
    """Although the limit that was to be tried is twice the knee, and they never reach it."""
    last = served(thrashing(knee), knee * 3 // 2, 200)[-100:]
    assert {one.slots for one in last} <= {knee, knee + 1}
    assert knee in {one.slots for one in last}


def test_clients_that_are_as_fast_as_alone_all_have_a_slot() -> None:
    last = served(flat(16), 6, 200)[-100:]
    assert all(one.slots > 6 for one in last)


def test_two_that_are_clearly_slower_together_take_turns() -> None:
    assert {one.slots for one in served(thrashing(1), 2, 100)[-50:]} == {1}


@pytest.mark.parametrize("knee", [2, 4, 8, 16])
def test_fewer_are_not_tried_where_everybody_would_wait_longer(knee: int) -> None:
    assert min(one.slots for one in served(flat(knee), 2 * knee, 900)[100:]) >= knee


def test_fewer_are_tried_where_little_is_lost() -> None:
    reasons, limit = set(), SlotLimit()
    run = Run(limit, 1, ALIKE)
    for _ in range(900):
        run.serve(soft(4), 1)
        reasons.add(limit.reason.rpartition(" do ")[2])
    assert "as well" in reasons


@pytest.mark.parametrize("knee", [2, 6, 16])
def test_a_machine_whose_speed_swings_keeps_its_slots(knee: int) -> None:
    """By half, every 40 answers: as where others use it as well."""
    ratios = []
    for seed in range(5):
        took_s = []
        for limit in (SlotLimit(), knee):
            run = Run(limit, seed, LOAD, clients=2 * knee)
            for turn in range(25):
                slower = 1.0 + turn % 2 / 2.0
                run.serve(Engine(lambda n, f=slower: f * max(1.0, n / knee)), 40)  # type: ignore[misc]
            took_s.append(run.ended[-1].ended_s - run.ended[200].ended_s)
        ratios.append(took_s[0] / took_s[1])
    assert median(ratios) <= 1.1


@pytest.mark.parametrize("knee", [8, 16])
def test_a_faster_machine_gets_few_more_at_first_where_many_more_did_worse(knee: int) -> None:
    for seed in range(5):
        run = Run(SlotLimit(), seed, ALIKE, clients=2 * knee)
        home = run.serve(thrashing(knee), 40 * knee)[-1].slots
        faster = Engine(lambda n: 0.5 * max(1.0, (n / knee) ** 1.5))
        assert max(one.slots for one in run.serve(faster, 100)) <= home + home // 8


def test_guesses_about_fewer_slots_are_forgotten_when_many_more_gain_throughput() -> None:
    """The engine gets room for 18 instead of 6, which makes it faster with the 9 that hold, too."""
    found = []
    for seed in range(3070, 3080):
        run = Run(SlotLimit(), seed, ALIKE)
        run.serve(flat(6), 400)
        found.append(run.serve(flat(18), 400)[-1].slots)
    assert max(found) <= 24


def test_a_refusal_is_expected_while_more_is_tried_and_of_what_was_sent_before_that_ended() -> None:
    limit = SlotLimit(4)
    assert limit.expects_refusal(started_s=0.5)
    limit.note_refused(now_s=1.0)
    assert (limit.slots, limit.listens) == (3, False)
    assert limit.expects_refusal(started_s=0.5)
    assert not limit.expects_refusal(started_s=1.5)


@pytest.mark.parametrize("runs", [4, 6])
def test_prompts_of_many_sizes_read_one_after_the_other_do_not_wait_for_a_slot(runs: int) -> None:
    """Some begin late for that, but all write at once: that is no queue."""
    load = Load((6.0, 1.0), (2.5, 0.5), 0.02, base_s=0.02, prompt_token_s=1e-4, output_token_s=0.03)
    ratios = []
    for seed in range(10):
        took_s = []
        for limit in (SlotLimit(), runs):
            run = Run(limit, seed, load, clients=2 * runs)
            run.serve(Engine(runs=runs, reads=1), 360)
            took_s.append(run.ended[-1].ended_s - run.ended[60].ended_s)
        ratios.append(took_s[0] / took_s[1])
    assert median(ratios) <= 1.1
