"""Slots and leases: never more out than there are, and every one comes back, once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import InvariantBroken
from forebay.guard.slots import SlotLease, Slots

STEPS = st.lists(
    st.one_of(
        st.just(("take", 0)),
        st.tuples(st.just("give_back"), st.integers(0, 40)),
        st.tuples(st.just("resize"), st.integers(1, 5)),
    ),
    max_size=80,
)


@given(st.integers(1, 5), STEPS)
def test_whatever_happens_no_more_run_than_there_are_slots(
    size: int, steps: list[tuple[str, int]]
) -> None:
    slots, held, ended = Slots(size), list[SlotLease](), list[SlotLease]()
    for step, number in steps:
        if step == "take":
            before = slots.in_flight
            lease = slots.take()
            assert (lease is None) == (before >= slots.size)
            if lease is not None:
                held.append(lease)
        elif step == "resize":
            slots.resize(number)
        elif held:  # any of them, or one that has ended already
            lease = (held + ended)[number % (len(held) + len(ended))]
            lease.give_back()
            if lease in held:
                held.remove(lease)
                ended.append(lease)
        assert slots.in_flight == len(held)
    for lease in held:
        lease.give_back()
    assert slots.in_flight == 0
    assert slots.take() is not None


def test_a_lower_bound_lets_what_runs_finish_and_nothing_new_in() -> None:
    slots = Slots(2)
    first, second = slots.take(), slots.take()
    assert first is not None
    assert second is not None
    slots.resize(1)
    first.give_back()
    assert slots.take() is None
    second.give_back()
    assert slots.take() is not None


def test_a_lease_that_nobody_gave_is_a_bug() -> None:
    with pytest.raises(InvariantBroken):
        Slots(1).gave_back()


def test_refusals_are_counted() -> None:
    slots = Slots(1)
    slots.take()
    slots.take()
    assert (slots.taken, slots.refused) == (1, 1)
