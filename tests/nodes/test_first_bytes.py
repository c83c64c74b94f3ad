"""Which first bytes are late, where prompts are read one after the other."""

from __future__ import annotations

import pytest

from forebay.nodes.first_bytes import FirstBytes
from forebay.nodes.known_rounds import KnownRounds
from forebay.nodes.slot_rounds import Costs, Round, Sample

KNOWN = KnownRounds({2: Round(2, 8, 1.0, 1.0, 1.0)})


@pytest.fixture
def costs() -> Costs:
    """Reading a token takes a millisecond, and each first byte 50 ms more."""
    costs = Costs()
    sizes = (100, 500, 1000, 2000)
    costs.learn([Sample("llama", size, 10, 0.05 + 0.001 * size, 1.0) for size in sizes], KNOWN[2])
    return costs


@pytest.mark.parametrize(("took_s", "is_late"), [(0.5, False), (3.2, False), (4.0, True)])
def test_a_short_prompt_may_wait_for_a_long_one_that_is_read_before_it(
    costs: Costs, took_s: float, is_late: bool
) -> None:
    first = FirstBytes(slots=4)
    if took_s > 3.05:
        assert not first.took(("llama", 3000, 0.0), 3.05, 3.05, KNOWN, costs)
    assert first.took(("llama", 100, 0.0), took_s, took_s, KNOWN, costs) is is_late


def test_a_long_prompt_that_was_sent_before_the_limit_was_set_is_read_first_too(
    costs: Costs,
) -> None:
    first = FirstBytes(slots=4, since_s=1.0)
    assert not first.took(("llama", 3000, 0.9), 3.1, 4.0, KNOWN, costs)
    assert not first.took(("llama", 100, 1.0), 3.2, 4.2, KNOWN, costs)
    assert first.begun == 1


def test_streams_behind_a_prompt_that_is_being_read_are_not_overdue(costs: Costs) -> None:
    first = FirstBytes(slots=4)
    waiting = [("llama", 3000, 0.0), ("llama", 100, 0.1)]
    assert first.overdue(waiting, 3.0, KNOWN, costs) == 0
    assert first.overdue(waiting[1:], 3.0, KNOWN, costs) == 1
    assert first.overdue(waiting, 9.0, KNOWN, costs) == 1


def test_prompts_that_were_read_at_the_same_time_are_no_excuse(costs: Costs) -> None:
    first = FirstBytes(slots=16)
    for _ in range(10):
        assert not first.took(("llama", 1000, 0.0), 1.1, 1.1, KNOWN, costs)
    assert first.took(("llama", 100, 0.5), 5.0, 5.5, KNOWN, costs)


@pytest.mark.parametrize(("took_s", "inside"), [(0.2, 0), (8.0, 2)])
def test_what_seems_to_wait_inside_does_not_if_no_first_byte_is_late(
    costs: Costs, took_s: float, inside: int
) -> None:
    first = FirstBytes(slots=4)
    assert first.seen_inside(2) is None
    first.wrote = 2
    first.took(("llama", 100, 0.0), took_s, took_s, KNOWN, costs)
    assert first.seen_inside(2) == inside
