"""A replica without its fleet leads itself, on its share of the slots."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from coordination.pair import LEASE_S
from forebay.coordination.follower.local_ticket import LocalTicket, own_picture
from forebay.coordination.follower.share import share_of
from forebay.coordination.protocol.messages import About
from forebay.coordination.roles import Roles
from forebay.core import (
    Action,
    Arrived,
    Event,
    Finished,
    KeyLimits,
    NodeChanged,
    NodeRemoved,
    Options,
    OptionsChanged,
    Reject,
    Route,
    Wait,
)

MEMBERS = ("a", "b")
GPU = NodeChanged("gpu", slots=4, models=("llama",))
ONE_SLOT = replace(GPU, slots=1)


def ticket(name: str, *, seq: int = 0, runs: bool = False, priority: str = "normal") -> LocalTicket:
    ticket = LocalTicket(Arrived(name, "llama", priority=priority), 0.0)
    if runs:
        ticket.run(Route(name, "gpu", seq=seq), 0.0)
    elif seq:
        ticket.wait(Wait(name, "busy", 1, seq=seq))
    return ticket


class Lone:
    """One replica that has just lost the store, and what it did."""

    def __init__(
        self,
        *tickets: LocalTicket,
        me: str = "a",
        node: NodeChanged = GPU,
        options: Options | None = None,
    ) -> None:
        self.roles = Roles(About(me), options or Options(), LEASE_S, lambda arrival: arrival)
        follower = self.roles.follower
        follower.epoch, follower.members = 1, MEMBERS
        follower.post(node, 1.0)
        follower.tickets.update({one.arrival.id: one for one in tickets})
        self.actions = self.roles.run(self.roles.lead_itself, 1.0)

    def post(self, event: Event, now_s: float = 2.0) -> list[Action]:
        return self.roles.run(lambda at_s: self.roles.post(event, at_s), now_s)

    def cut_off(self, *, off: bool) -> list[Action]:
        return self.roles.run(lambda now_s: self.roles.set_cut_off(off, now_s), 2.0)


def started(actions: list[Action]) -> list[str]:
    return [action.id for action in actions if isinstance(action, Route)]


def refusal(actions: list[Action]) -> Reject:
    (refused,) = actions
    assert isinstance(refused, Reject)
    return refused


def test_newcomers_start_on_the_share_or_are_refused() -> None:
    lone = Lone()
    assert [started(lone.post(Arrived(name, "llama"))) for name in "xy"] == [["x"], ["y"]]
    refused = refusal(lone.post(Arrived("z", "llama")))
    assert refused.code == "coordination_lost"
    assert "cannot coordinate" in refused.reasons[0]


def test_what_runs_counts_first_whatever_the_order_and_beyond_the_share_nothing_starts() -> None:
    waiting = [ticket(name, seq=seq) for name, seq in (("w2", 9), ("w1", 8))]
    lone = Lone(*waiting, *(ticket(f"r{n}", seq=20 + n, runs=True) for n in range(3)))
    assert started(lone.actions) == []
    assert lone.post(Finished("r0")) == []
    assert started(lone.post(Finished("r1"))) == ["w1"]
    assert started(lone.post(Finished("r2"))) == ["w2"]


def test_what_waited_starts_by_the_rules_and_not_by_its_age() -> None:
    waiting = [
        ticket(name, seq=seq, priority=name) for seq, name in enumerate(("low", "normal"), 1)
    ]
    lone = Lone(*waiting, ticket("high", seq=3, priority="high"), ticket("asked"))
    assert started(lone.actions) == ["high", "normal"]
    assert started(lone.post(Finished("high"))) == ["low"]


def test_what_was_not_decided_is_decided_now() -> None:
    lone = Lone(ticket("asked1"), ticket("waiting", seq=3), ticket("asked2"))
    assert started(lone.actions) == ["waiting", "asked1"]
    assert [action.id for action in lone.actions if isinstance(action, Reject)] == ["asked2"]


def test_cut_off_nothing_starts_until_the_others_are_alone_as_well() -> None:
    lone = Lone(ticket("w", seq=1), ticket("r1", runs=True), ticket("r2", runs=True))
    lone.cut_off(off=True)
    assert lone.post(Finished("r1")) == []
    assert "cannot reach the shared store" in refusal(lone.post(Arrived("x", "llama"))).reasons[0]
    assert lone.cut_off(off=True) == []
    assert started(lone.cut_off(off=False)) == ["w"]


def test_whether_it_has_a_share_at_all_follows_the_nodes() -> None:
    me = next(name for name in MEMBERS if not share_of(name, MEMBERS, "gpu", 1))
    lone = Lone(me=me, node=ONE_SLOT)
    modes: list[str] = [lone.roles.follower.mode]
    for event in (GPU, ONE_SLOT, replace(GPU, name="gpu2"), NodeRemoved("gpu2")):
        lone.post(event)
        modes.append(lone.roles.follower.mode)
    assert modes == ["cut_off", "alone", "cut_off", "alone", "cut_off"]


def test_of_two_that_share_one_slot_one_has_it() -> None:
    two = [Lone(me=me, node=ONE_SLOT) for me in MEMBERS]
    assert sorted(lone.roles.follower.mode for lone in two) == ["alone", "cut_off"]
    assert sorted(started(lone.post(Arrived("x", "llama"))) for lone in two) == [[], ["x"]]


def test_new_settings_make_no_line_for_those_who_are_alone() -> None:
    lone = Lone(*(ticket(f"r{n}", runs=True) for n in range(2)))
    lone.post(OptionsChanged(Options(max_size=50)))
    assert refusal(lone.post(Arrived("n", "llama"))).code == "coordination_lost"


def test_it_has_its_part_of_a_keys_rate_and_begins_with_none_of_it() -> None:
    lone = Lone(options=Options(key_limits={"k": KeyLimits(requests_per_minute=6)}))
    refused = refusal(lone.post(Arrived("x", "llama", key="k"), 1.0))
    assert refused.code == "rate_limited"
    assert refused.retry_after_s == pytest.approx(20.0)
    assert started(lone.post(Arrived("y", "llama", key="k"), 21.1)) == ["y"]


def test_the_picture_of_one_without_a_leader_has_its_own_tickets() -> None:
    tickets = [ticket("w", seq=1), ticket("asked"), ticket("r", runs=True)]
    seen = own_picture(Options(), {"gpu": NodeChanged("gpu", 1, ("llama",))}, tickets, 2.0)
    assert (seen.waiting, seen.running) == (2, 1)
