"""A new leader takes a long line over piece by piece, and answers signs of life meanwhile."""

from __future__ import annotations

from forebay.coordination.leader.leader import Leader
from forebay.coordination.leader.takeover import TAKEN_AT_ONCE
from forebay.coordination.protocol.messages import (
    About,
    Announced,
    Down,
    Heartbeat,
    HeartbeatReply,
    ReplicaBatch,
    Up,
)
from forebay.core import Arrived, Finished, NodeChanged, Options, Resumed, Route, Totals

from .pair import LocalFleet

ME, OTHER = About("11111111-1"), About("22222222-1")
WAITING = 2 * TAKEN_AT_ONCE + 500


def new_leader() -> Leader:
    leader = Leader(ME, 2, Options(max_size=10 * WAITING), 5.0, [ME.member, OTHER.member])
    leader.begin(Totals(), {}, 0.0)
    leader.receive(ReplicaBatch(ME.member, 1, 0, (Announced(ME),)), 0.0)
    return leader


def announce(leader: Leader, *before: Up) -> None:
    node = NodeChanged("gpu1", slots=1, models=("llama",))
    backwards = [
        Resumed(Arrived(f"t{place}", "llama"), seq=place) for place in range(WAITING, 0, -1)
    ]
    items = (*before, node, *backwards, Announced(OTHER))
    leader.receive(ReplicaBatch(OTHER.member, 1, 0, items), 0.0)


def said(leader: Leader) -> list[Down]:
    orders = leader.members.orders_for(OTHER.member)
    return [] if orders is None else list(orders.items)


def routed(items: list[Down]) -> list[str]:
    return [item.id for item in items if isinstance(item, Route)]


def work(leader: Leader) -> int:
    """Tick while it asks for it; returns how often."""
    ticks = 0
    while leader._takeover is not None:
        due_s = leader.next_deadline_s()
        assert due_s is not None
        leader.tick(max(due_s, 2.0))
        ticks += 1
    return ticks


def test_a_long_line_is_taken_piece_by_piece() -> None:
    leader = new_leader()
    announce(leader)
    assert leader._takeover is not None
    assert leader.next_deadline_s() == 0.0, "the rest must not wait until the gathering would end"
    assert work(leader) == 2


def test_signs_of_life_are_answered_before_the_line_is_taken() -> None:
    leader = new_leader()
    announce(leader)
    said(leader)
    leader.receive(ReplicaBatch(OTHER.member, 1, 1, (Heartbeat(7.0),)), 1.0)
    stamps = [item.stamp_s for item in said(leader) if isinstance(item, HeartbeatReply)]
    assert 7.0 in stamps


def test_the_order_is_that_of_the_places_and_news_comes_last() -> None:
    leader = new_leader()
    running = Resumed(Arrived("r", "llama"), seq=1, node="gpu1", attempt=1)
    announce(leader, running)
    leader.receive(ReplicaBatch(OTHER.member, 1, 1, (Finished("r"), Finished("t1"))), 1.0)
    work(leader)
    assert routed(said(leader)) == ["t1", "t2"]


def test_who_announces_anew_meanwhile_is_taken_once() -> None:
    leader = new_leader()
    announce(leader)
    node = NodeChanged("gpu1", slots=2, models=("llama",))
    again = (node, Resumed(Arrived("t5", "llama"), seq=5), Announced(OTHER))
    leader.receive(ReplicaBatch(OTHER.member, 2, 0, again), 1.0)
    said(leader)
    work(leader)
    leader.receive(ReplicaBatch(OTHER.member, 2, 1, (Arrived("new", "llama"),)), 2.0)
    assert leader.totals().cancelled == 0
    assert "new" in routed(said(leader))  # nobody waits before it: the old line is gone


def test_what_is_announced_late_stands_before_whoever_came_meanwhile() -> None:
    node = NodeChanged("gpu1", slots=1, models=("llama",))
    fleet = LocalFleet(epoch=1)
    frozen, other = fleet.join("frozen-1", node), fleet.join("other-1", node)
    other.post(Arrived("runs", "llama"), fleet, settle=True)
    for name in ("early", "early too"):
        frozen.post(Arrived(name, "llama"), fleet, settle=True)
    fleet = LocalFleet(epoch=2, name="next-1")
    fleet.take_over(other)
    for name in ("newcomer", "newcomer too"):
        other.post(Arrived(name, "llama"), fleet, settle=True)
    fleet.take_over(frozen)  # it has thawed
    for name in ("runs", "early", "early too"):
        replica = frozen if name in frozen.follower.tickets else other
        replica.post(Finished(name), fleet, settle=True)
    assert frozen.started == ["early", "early too"]
    assert other.started == ["runs", "newcomer"]


def test_waiting_for_the_others_announcements_is_waiting() -> None:
    node = NodeChanged("gpu1", slots=1, models=("llama",))
    fleet = LocalFleet(epoch=1)
    b = fleet.join("b-1", node)
    for name in ("runs", "waits"):
        b.post(Arrived(name, "llama"), fleet, settle=True)
    b.post(Finished("runs"), fleet)
    fleet = LocalFleet(epoch=2, name="next-1", expected=("b-1", "dead-1"))
    fleet.take_over(b)
    fleet.now_s += 1.0
    fleet.leader.tick(fleet.now_s)
    fleet.settle()
    assert [action.waited_s for action in b.actions if isinstance(action, Route)] == [0.0, 1.0]


def late(priority: str, name: str, user: str = "") -> Arrived:
    return Arrived(name, "llama", user=user, priority=priority)


def test_a_slot_that_came_free_without_a_leader_goes_to_who_is_first_by_the_rules() -> None:
    node = NodeChanged("gpu1", slots=1, models=("llama",))
    fleet = LocalFleet(epoch=1)
    b, c = fleet.join("b-1", node), fleet.join("c-1", node)
    b.post(Arrived("runs", "llama"), fleet, settle=True)
    b.post(late("low", "low"), fleet, settle=True)
    c.post(late("normal", "normal"), fleet, settle=True)
    b.post(late("high", "high"), fleet, settle=True)
    b.post(Finished("runs"), fleet)  # nobody leads who would hear of it
    fleet = LocalFleet(epoch=2, name="next-1", expected=("b-1", "c-1"))
    fleet.take_over(b)
    fleet.take_over(c)
    for name in ("high", "normal"):
        replica = b if name in b.follower.tickets else c
        replica.post(Finished(name), fleet, settle=True)
    assert (b.started, c.started) == (["runs", "high", "low"], ["normal"])


def test_one_that_announces_late_starts_by_the_rules_what_may_start() -> None:
    node = NodeChanged("gpu1", slots=1, models=("llama",))
    fleet = LocalFleet(epoch=1)
    frozen, other = fleet.join("frozen-1", node), fleet.join("other-1", node)
    other.post(Arrived("runs", "llama"), fleet, settle=True)
    for priority in ("low", "normal", "high"):
        frozen.post(late(priority, priority), fleet, settle=True)
    other.post(Finished("runs"), fleet)
    fleet = LocalFleet(epoch=2, name="next-1")
    fleet.take_over(other)
    fleet.take_over(frozen)
    for name in ("high", "normal"):
        frozen.post(Finished(name), fleet, settle=True)
    assert frozen.started == ["high", "normal", "low"]


def test_who_will_not_wait_is_not_refused_for_slots_that_were_only_kept_for_a_moment() -> None:
    nodes = [NodeChanged(f"gpu{n}", slots=1, models=(f"llama{n}",)) for n in (1, 2)]
    for expected in ((), ("frozen-1",)):
        fleet = LocalFleet(epoch=1)
        frozen = fleet.join("frozen-1", *nodes)
        for name in ("runs", "waits"):
            frozen.post(Arrived(name, "llama1"), fleet, settle=True)
        frozen.post(Arrived("now", "llama2", max_wait_s=0.0), fleet)
        fleet = LocalFleet(epoch=2, name="next-1", expected=expected)
        fleet.take_over(frozen)
        assert frozen.started == ["runs", "now"]
