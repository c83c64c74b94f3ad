"""Keys with limits where several replicas share the queue: the leader alone counts."""

from __future__ import annotations

import pytest

from forebay.coordination.follower.borrowed_slots import BorrowedSlots
from forebay.core import Arrived, KeyLimits, NodeChanged, Options, OptionsChanged, Reject, Route

from . import pair

PACED = Options(max_size=100, key_limits={"k": KeyLimits(requests_per_minute=6)})
GPU = NodeChanged("gpu", slots=50, models=("llama",))


def arrivals(count: int, letter: str = "r") -> list[Arrived]:
    return [Arrived(f"{letter}{number}", "llama", key="k") for number in range(count)]


@pytest.fixture(autouse=True)
def paced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair, "OPTIONS", PACED)


def test_replicas_share_one_rate_and_are_told_how_it_stands() -> None:
    fleet = pair.LocalFleet()
    one, two = fleet.join("one-1", GPU), fleet.join("two-1", GPU)
    for mine, theirs in zip(arrivals(4, "a"), arrivals(4, "b"), strict=True):
        one.post(mine, fleet, settle=True)
        two.post(theirs, fleet, settle=True)
    assert len(one.started + two.started) == 6
    assert len(one.waiting + two.waiting) == 2
    last = [action for action in two.actions if isinstance(action, Route)][-1]
    assert last.rate is not None
    assert last.rate.remaining_requests == 0


def test_what_takes_no_slot_counts_in_the_one_rate_too() -> None:
    fleet = pair.LocalFleet()
    one, two = fleet.join("one-1", GPU), fleet.join("two-1", GPU)
    for number in range(4):
        one.post(Arrived(f"a{number}", "", key="k"), fleet, settle=True)
        two.post(Arrived(f"b{number}", "", key="k"), fleet, settle=True)
    actions = [action for action in one.actions + two.actions if isinstance(action, Reject)]
    assert sorted(action.code for action in actions) == ["counted"] * 6 + ["rate_limited"] * 2
    assert [*one.follower.tickets, *two.follower.tickets] == []


def test_a_key_with_a_rate_takes_no_lent_slot() -> None:
    ours = BorrowedSlots(PACED)
    ours.change(GPU, 0.0)
    ours.lend("gpu", 2, 0.0)
    assert ours.start(Arrived("a", "llama", key="k"), 0.0) is None
    assert ours.start(Arrived("b", "llama", key="other"), 0.0) is not None


def test_a_rate_that_is_set_later_ends_the_use_of_lent_slots() -> None:
    fleet = pair.LocalFleet()
    replica = fleet.join("one-1", GPU)
    replica.post(OptionsChanged(Options()), fleet)
    borrowed = replica.follower._borrowed
    assert not borrowed.paced
    replica.post(OptionsChanged(PACED), fleet)
    assert "k" in borrowed.paced


def test_a_leader_that_takes_over_begins_with_empty_buckets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = {"k": KeyLimits(requests_per_minute=60)}
    monkeypatch.setattr(pair, "OPTIONS", Options(key_limits=limits))
    fleet = pair.LocalFleet(epoch=2)
    replica = fleet.join("one-1", GPU)
    for arrival in arrivals(2):
        replica.post(arrival, fleet, settle=True)
    assert (replica.started, replica.waiting) == ([], ["r0", "r1"])
    fleet.now_s += 1.01
    fleet.leader.tick(fleet.now_s)
    fleet.settle()
    assert replica.started == ["r0"]
