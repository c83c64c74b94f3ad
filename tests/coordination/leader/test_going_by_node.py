"""A session and a cached prompt decide the node, whatever of it is lent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from forebay.coordination.leader.deferred_decisions import DEFER_S
from forebay.core import (
    Arrived,
    Cancelled,
    Describe,
    Finished,
    Inspected,
    NodeChanged,
    NodeRested,
    Reject,
    Revoked,
    Route,
)

from ..pair import LocalFleet, LocalReplica

if TYPE_CHECKING:
    from forebay.coordination.leader.leader import Leader

NODES = tuple(NodeChanged(name, slots=2, models=("m",)) for name in ("a", "b"))
BY_NODE: dict[str, dict[str, Any]] = {
    "session": {"affinity": "s"},
    "prompt": {"prefix": (1, 2), "prefix_tokens": (1000, 1000)},
}
each_kind = pytest.mark.parametrize("kind", list(BY_NODE))


def turn(name: str, kind: str, **more: Any) -> Arrived:
    return Arrived(name, "m", prompt_tokens=2000, **BY_NODE[kind], **more)


def joined(fleet: LocalFleet) -> tuple[LocalReplica, LocalReplica]:
    fleet.replicas[fleet.name].post(NODES[0], fleet)
    fleet.replicas[fleet.name].post(NODES[1], fleet)
    return fleet.join("one-1", *NODES), fleet.join("two-1", *NODES)


def node_of(replica: LocalReplica, name: str) -> str:
    return next(one.node for one in replica.actions if isinstance(one, Route) and one.id == name)


def begun(fleet: LocalFleet, kind: str, replica: LocalReplica) -> str:
    """Serve a first turn; return the node."""
    replica.post(turn("first", kind), fleet, settle=True)
    fleet.now_s += 1.0
    replica.post(Finished("first", True, 2000, 10), fleet, settle=True)
    return node_of(replica, "first")


def lend_all(fleet: LocalFleet, replica: LocalReplica) -> None:
    """Leave every slot of both nodes on loan to a replica, idle."""
    names = [f"plain{number}" for number in range(4)]
    for name in names:
        replica.post(Arrived(name, "m"), fleet, settle=True)
    for name in names:
        replica.post(Finished(name), fleet, settle=True)
    assert lent(fleet.leader)[replica.name] == 4


def lent(leader: Leader) -> dict[str, int]:
    return {each.about.member: each.lent for each in leader.statuses(0.0)}


@each_kind
def test_each_turn_runs_where_the_last_one_did_whichever_replica_has_it(kind: str) -> None:
    fleet = LocalFleet()
    replicas = [fleet.replicas[fleet.name], *joined(fleet)]
    home = begun(fleet, kind, replicas[1])
    for number in range(12):
        replica, name = replicas[number % 3], f"turn{number}"
        replica.post(turn(name, kind), fleet, settle=True)
        other = replicas[(number + 1) % 3]
        other.post(Arrived(f"new{number}", "m", affinity=f"new{number}"), fleet, settle=True)
        assert node_of(replica, name) == home
        replica.post(Finished(name), fleet, settle=True)
        other.post(Finished(f"new{number}"), fleet, settle=True)
        if number % 4 == 3:
            fleet.leader.balance(fleet.now_s)
            fleet.settle()


@each_kind
@pytest.mark.parametrize("who", ["the same replica", "another replica", "the leader"])
def test_it_has_a_slot_of_its_node_that_is_idle_on_loan(kind: str, who: str) -> None:
    fleet = LocalFleet()
    one, two = joined(fleet)
    home = begun(fleet, kind, one)
    lend_all(fleet, two)
    asker = {"the same replica": two, "another replica": one}.get(who, fleet.replicas[fleet.name])
    asker.post(turn("again", kind), fleet, settle=True)
    assert node_of(asker, "again") == home
    assert asker.waiting == []
    assert lent(fleet.leader)["two-1"] == 2, "the other node's slots stay where they are"


def test_who_goes_by_no_node_leaves_loans_alone_and_uses_them() -> None:
    fleet = LocalFleet()
    _, two = joined(fleet)
    lend_all(fleet, two)
    two.post(Arrived("plain", "m"), fleet)
    assert two.started[-1] == "plain", "at once"
    fleet.settle()
    assert lent(fleet.leader)["two-1"] == 4


def test_a_session_uses_a_loan_where_one_node_alone_could_serve_it() -> None:
    fleet = LocalFleet()
    one = fleet.join("one-1", NODES[0])
    for name in ("x", "y"):
        one.post(turn(name, "session"), fleet)
        fleet.settle()
        one.post(Finished(name), fleet, settle=True)
    one.post(turn("z", "session"), fleet)
    assert one.started == ["x", "y", "z"], "at once"


def add_slot(fleet: LocalFleet, home: str) -> None:
    """Make a slot free at the other node."""
    (other,) = [node for node in NODES if node.name != home]
    for replica in fleet.replicas.values():
        replica.post(replace(other, slots=3), fleet, settle=True)


def deferred(fleet: LocalFleet) -> tuple[LocalReplica, LocalReplica, str]:
    """Have a turn wait for a slot on loan to a replica that hears nothing."""
    one, two = joined(fleet)
    home = begun(fleet, "prompt", one)
    lend_all(fleet, two)
    add_slot(fleet, home)
    del fleet.replicas["two-1"]
    fleet.leader.tick(fleet.now_s)
    one.post(turn("again", "prompt"), fleet, settle=True)
    assert one.started == ["first"]
    return one, two, home


def test_nobody_waits_for_a_loan_for_long() -> None:
    fleet = LocalFleet()
    one, _, home = deferred(fleet)
    due_s = fleet.leader.next_deadline_s()
    assert due_s is not None
    assert due_s == pytest.approx(fleet.now_s + DEFER_S)
    fleet.now_s = due_s
    fleet.leader.tick(due_s)
    fleet.settle()
    assert node_of(one, "again") != home


def test_nobody_waits_for_a_loan_longer_than_the_cache_there_saves() -> None:
    fleet = LocalFleet()
    one, two = joined(fleet)
    short = Arrived("first", "m", prompt_tokens=300, prefix=(1,), prefix_tokens=(300,))
    one.post(short, fleet, settle=True)
    fleet.now_s += 0.1
    one.post(Finished("first"), fleet, settle=True)
    lend_all(fleet, two)
    del fleet.replicas["two-1"]
    fleet.leader.tick(fleet.now_s)
    one.post(replace(short, id="again"), fleet, settle=True)
    due_s = fleet.leader.next_deadline_s()
    assert due_s is not None
    assert due_s == pytest.approx(fleet.now_s + 300 * 0.0002)


def test_it_starts_elsewhere_at_once_when_the_slot_turns_out_to_be_in_use() -> None:
    fleet = LocalFleet()
    one, two = joined(fleet)
    home = begun(fleet, "prompt", one)
    lend_all(fleet, two)
    add_slot(fleet, home)
    for name in ("v", "w", "x", "y"):
        two.post(Arrived(name, "m"), fleet)  # the leader has not heard of these
    one.post(turn("again", "prompt"), fleet)
    fleet.settle()
    assert node_of(one, "again") != home


def test_what_happens_to_it_meanwhile_leaves_nothing_behind() -> None:
    fleet = LocalFleet()
    one, two, home = deferred(fleet)
    one.post(Inspected("again"), fleet, settle=True)
    (told,) = [action for action in one.actions if isinstance(action, Describe)]
    assert (told.state, told.waited_s) == ("waiting", 0.0)
    one.post(Cancelled("again"), fleet, settle=True)
    one.post(turn("next", "prompt"), fleet, settle=True)
    one.post(Revoked("next", "cancelled"), fleet, settle=True)
    assert [action.code for action in one.actions if isinstance(action, Reject)] == ["cancelled"]
    one.post(turn("last", "prompt"), fleet, settle=True)
    fleet.replicas["two-1"] = two
    fleet.settle()
    assert node_of(one, "last") == home
    assert one.started == ["first", "last"]
    one.post(Finished("last"), fleet, settle=True)
    seen = fleet.observed()
    assert (seen.accepted, seen.cancelled, sum(seen.rejected.values())) == (6, 0, 0)


def test_no_more_wait_for_a_node_than_slots_seem_idle_there() -> None:
    fleet = LocalFleet()
    one, _, _ = deferred(fleet)
    one.post(turn("second", "prompt"), fleet, settle=True)
    one.post(turn("third", "prompt"), fleet, settle=True)
    assert one.started == ["first", "third"]


def test_a_node_that_rests_is_not_waited_for() -> None:
    fleet = LocalFleet()
    one, two = joined(fleet)
    home = begun(fleet, "prompt", one)
    lend_all(fleet, two)
    one.post(NodeRested(home, 60.0), fleet, settle=True)
    one.post(turn("again", "prompt"), fleet, settle=True)
    assert node_of(one, "again") != home
