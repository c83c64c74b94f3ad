"""What a replica may fill by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.coordination.follower.borrowed_slots import BorrowedSlots
from forebay.core import Arrived, NodeChanged, NodeRested, Options

GPU = NodeChanged("gpu", slots=8, models=("llama",))


def borrowing(slots: int = 2, view: NodeChanged = GPU) -> BorrowedSlots:
    made = BorrowedSlots(Options())
    made.change(view, 0.0)
    made.lend("gpu", slots, 0.0)
    return made


def test_only_what_is_lent_is_filled() -> None:
    ours = borrowing(2)
    assert [ours.start(Arrived(name, "llama"), 0.0) is not None for name in "abc"] == [
        True,
        True,
        False,
    ]
    assert ours.end("a", "gpu", 1.0) == 0
    route = ours.start(Arrived("d", "llama"), 1.0)
    assert route is not None
    assert route.node == "gpu"


@pytest.mark.parametrize(
    "arrival",
    [
        Arrived("a", "llama", job=True),
        Arrived("a", "llama", key="k", key_running_max=3),
        Arrived("a", "other"),
    ],
)
def test_what_needs_the_opinion_of_others_is_left_to_the_leader(arrival: Arrived) -> None:
    ours = borrowing()
    assert ours.start(arrival, 0.0) is None
    assert ours.idle == 2


def test_on_a_node_that_swaps_models_only_those_in_memory_start() -> None:
    ours = borrowing(view=NodeChanged("gpu", 8, ("llama", "qwen"), loaded=("qwen",)))
    assert ours.start(Arrived("a", "llama"), 0.0) is None
    assert ours.start(Arrived("b", "qwen"), 0.0) is not None


def test_a_fallback_is_the_leaders_choice() -> None:
    ours = borrowing()
    assert ours.start(Arrived("a", "other", fallbacks=("llama",)), 0.0) is None
    assert ours.start(Arrived("b", "llama", fallbacks=("other",)), 0.0) is not None


def test_a_node_that_rests_is_left_alone() -> None:
    ours = borrowing()
    ours.rest(NodeRested("gpu", 2.0), 0.0)
    assert ours.start(Arrived("a", "llama"), 1.0) is None


def test_a_node_that_is_gone_is_of_no_use_and_what_was_lent_can_still_be_given_back() -> None:
    ours = borrowing()
    ours.remove("gpu", 0.0)
    assert ours.start(Arrived("a", "llama"), 0.0) is None
    assert ours.recall("gpu", 0, 1.0) == 2


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("lend"), st.integers(1, 3)),
        st.tuples(st.just("recall"), st.integers(0, 4)),
        st.tuples(st.just("start"), st.just(0)),
        st.tuples(st.just("end"), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(STEPS)
def test_both_sides_of_a_loan_always_agree(steps: list[tuple[str, int]]) -> None:
    """The one that lends counts what it lent and what came back; nothing more ever runs."""
    ours = BorrowedSlots(Options())
    ours.change(NodeChanged("gpu", slots=1000, models=("llama",)), 0.0)
    lent = number = 0
    running: list[str] = []
    for kind, amount in steps:
        if kind == "lend":
            ours.lend("gpu", amount, 0.0)
            lent += amount
        elif kind == "recall":
            lent -= ours.recall("gpu", amount, 0.0)
            assert lent <= max(amount, len(running))
        elif kind == "start":
            number += 1
            if ours.start(Arrived(str(number), "llama"), 0.0) is not None:
                running.append(str(number))
        elif running:
            lent -= ours.end(running.pop(amount % len(running)), "gpu", 0.0)
        assert len(running) <= lent
        assert (ours.slots, ours.idle) == (lent, lent - len(running))
