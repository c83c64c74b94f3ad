"""Schedules are drawn from their seed: one fault at a time, each cured, with time to recover."""

from __future__ import annotations

from itertools import pairwise

import pytest

from harness.fleet.schedule import (
    KINDS,
    LEADER,
    OF_ONE,
    SUDDEN,
    Fault,
    length_s,
    random_schedule,
    recovery_s,
    windows_of,
)

LEASE_S = 1.0


@pytest.mark.parametrize("seed", range(20))
def test_one_fault_is_over_and_recovered_from_before_the_next_begins(seed: int) -> None:
    schedule = random_schedule(seed, gateways=3, lease_s=LEASE_S, faults=6)
    assert len(schedule) == 6
    for fault, following in pairwise(schedule):
        assert following.at_s >= fault.at_s + fault.for_s + recovery_s(LEASE_S)
    last = schedule[-1]
    assert length_s(schedule, LEASE_S) > last.at_s + last.for_s + recovery_s(LEASE_S)


@pytest.mark.parametrize("seed", range(20))
def test_each_fault_has_a_target_that_it_can_befall(seed: int) -> None:
    for fault in random_schedule(seed, gateways=3, lease_s=LEASE_S, faults=6):
        assert fault.target in ((LEADER, 1, 2, 3) if fault.kind in OF_ONE else (-1,))
        assert (fault.for_s == 0.0) == (fault.kind in SUDDEN)


def test_the_same_seed_gives_the_same_and_others_give_others() -> None:
    drawn = [random_schedule(seed, 2, LEASE_S, 4) for seed in range(20)]
    assert drawn == [random_schedule(seed, 2, LEASE_S, 4) for seed in range(20)]
    assert len(set(drawn)) == 20


def test_a_few_seeds_have_every_kind_on_leader_and_others() -> None:
    faults = [one for seed in range(20) for one in random_schedule(seed, 2, LEASE_S, 4)]
    assert {fault.kind for fault in faults} == set(KINDS)
    assert {fault.target for fault in faults} == {-1, LEADER, 1, 2}


def test_a_window_is_as_long_as_its_fault_and_the_recovery() -> None:
    fault = Fault(1.0, "cut", 2, 0.5)
    (window,) = windows_of([(fault, 11.0, 11.5)], LEASE_S)
    assert (window.from_s, window.to_s) == (11.0, 11.5 + recovery_s(LEASE_S))
    assert window.why == "cut 2"
