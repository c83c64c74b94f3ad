"""The two halves together: messages lost, repeated, out of order; leaders that follow leaders."""

from __future__ import annotations

import pytest

from forebay.coordination.protocol.messages import (
    ITEMS_MAX,
    GaveBack,
    HeartbeatReply,
    MemberLeft,
    Orders,
    Resigned,
)
from forebay.core import (
    Arrived,
    Cancelled,
    Finished,
    NodeChanged,
    NodeRemoved,
    Observed,
    Returned,
    Route,
    ShutDown,
)

from .pair import LEASE_S, LocalFleet, LocalReplica, orders_for

GPU = NodeChanged("gpu", slots=2, models=("llama",))


@pytest.fixture
def fleet() -> LocalFleet:
    return LocalFleet()


def arrive(replica: LocalReplica, fleet: LocalFleet, *names: str) -> None:
    for name in names:
        replica.post(Arrived(name, "llama"), fleet, settle=True)


def test_a_replica_gets_its_slots_and_then_waits(fleet: LocalFleet) -> None:
    b = fleet.join("b-1", GPU)
    arrive(b, fleet, "x", "y", "z")
    assert b.started == ["x", "y"]
    assert b.waiting == ["z"]
    b.post(Finished("x"), fleet, settle=True)
    assert b.started == ["x", "y", "z"]


def test_a_batch_that_is_repeated_counts_once(fleet: LocalFleet) -> None:
    b = fleet.join("b-1", GPU)
    b.post(Arrived("x", "llama"), fleet)
    b.post(Arrived("y", "llama"), fleet)
    b.post(Cancelled("y"), fleet)
    batches = b.follower.take_batches()
    b.send(batches + batches, fleet)
    fleet.settle()
    assert b.started == ["x"]
    assert fleet.observed().accepted == 2


def test_after_a_batch_that_was_lost_everything_is_announced_anew(fleet: LocalFleet) -> None:
    b = fleet.join("b-1", GPU)
    arrive(b, fleet, "x")
    b.post(Arrived("y", "llama"), fleet)
    b.post(Finished("x"), fleet)
    assert b.follower.take_batches()  # and nobody hears them
    generation = b.follower.outbox.generation
    arrive(b, fleet, "z")
    assert b.follower.outbox.generation == generation + 1
    assert sorted(b.started) == ["x", "y", "z"]


def test_batches_out_of_order_end_in_the_same_state(fleet: LocalFleet) -> None:
    b = fleet.join("b-1", GPU)
    b.post(Arrived("x", "llama"), fleet)
    first = b.follower.take_batches()
    b.post(Arrived("y", "llama"), fleet)
    b.send(b.follower.take_batches(), fleet)
    b.send(first, fleet)
    fleet.settle()
    assert sorted(b.started) == ["x", "y"]


def test_orders_that_are_repeated_or_come_after_a_gap_start_nothing_twice(
    fleet: LocalFleet,
) -> None:
    b = fleet.join("b-1", GPU)
    b.post(Arrived("x", "llama"), fleet)
    b.send(b.follower.take_batches(), fleet)
    [orders] = orders_for(fleet, "b-1")
    for _ in range(2):
        b.hear(orders, fleet)
    assert b.started == ["x"]
    b.post(Arrived("y", "llama"), fleet)
    b.send(b.follower.take_batches(), fleet)
    assert orders_for(fleet, "b-1")  # lost
    b.post(Arrived("z", "llama"), fleet, settle=True)
    assert b.started == ["x", "y"]
    assert "z" in b.waiting


@pytest.mark.parametrize(("epoch", "generation"), [(0, 1), (1, 0), (1, 2)])
def test_orders_of_another_epoch_or_generation_are_refused(
    fleet: LocalFleet, epoch: int, generation: int
) -> None:
    b = fleet.join("b-1", GPU)
    b.post(Arrived("x", "llama"), fleet)
    b.send(b.follower.take_batches(), fleet)
    [orders] = orders_for(fleet, "b-1")
    b.hear(Orders(epoch, "lead-1", generation, orders.number, orders.items), fleet)
    assert b.started == []


def test_what_runs_is_never_started_again(fleet: LocalFleet) -> None:
    b = fleet.join("b-1", GPU)
    arrive(b, fleet, "x")
    generation, number = b.follower.outbox.generation, b.follower._received
    b.hear(Orders(1, "lead-1", generation, number, (Route("x", "gpu"),)), fleet)
    assert b.started == ["x"]


def test_an_epoch_that_is_given_twice_is_that_of_the_one_who_speaks(fleet: LocalFleet) -> None:
    b = fleet.join("b-1", GPU)
    generation = b.follower.outbox.generation
    b.hear(Orders(1, "other-1", generation, 0, ()), fleet)
    assert (b.follower.leader, b.follower.outbox.generation) == ("other-1", generation + 1)


def test_slots_of_one_that_announces_anew_go_to_nobody_meanwhile(fleet: LocalFleet) -> None:
    """Otherwise those who wait would start in slots that it is about to say are taken."""
    b, c = fleet.join("b-1", GPU), fleet.join("c-1", GPU)
    arrive(b, fleet, "x", "y")
    arrive(c, fleet, "waits")
    b.follower.join(1, "lead-1", fleet.now_s)
    fleet.settle()
    assert c.started == []
    b.post(Finished("x"), fleet, settle=True)
    assert c.started == ["waits"]


def test_loans_of_one_that_announces_anew_come_back(fleet: LocalFleet) -> None:
    b, c = fleet.join("b-1", GPU), fleet.join("c-1", GPU)
    arrive(b, fleet, "x", "y")
    for name in "xy":
        b.post(Finished(name), fleet, settle=True)
    assert b.follower._borrowed.slots == 2
    arrive(b, fleet, "lent")
    b.follower.join(1, "lead-1", fleet.now_s)
    fleet.settle()
    arrive(c, fleet, "one", "two")
    assert (c.started, c.waiting) == (["one"], ["two"])


def test_one_that_dies_while_it_announces_leaves_nothing_behind(fleet: LocalFleet) -> None:
    b, c = fleet.join("b-1", GPU), fleet.join("c-1", GPU)
    arrive(b, fleet, "x", "y")
    arrive(c, fleet, "waits")
    arrive(b, fleet, *(f"b{n}" for n in range(ITEMS_MAX // 100)))
    b.follower.join(1, "lead-1", fleet.now_s)
    [batch] = b.follower.take_batches()
    fleet.leader.receive(type(batch)("b-1", batch.generation, 0, batch.items[:2]), fleet.now_s)
    fleet.now_s += LEASE_S
    c.follower.send_heartbeat(fleet.now_s)
    c.send(c.follower.take_batches(), fleet)
    fleet.leader.tick(fleet.now_s)
    fleet.settle()
    assert c.started == ["waits"]


def test_what_runs_is_heard_before_what_waits_and_could_start(fleet: LocalFleet) -> None:
    """A replica that was forgotten comes back: its running ones hold slots that seem free."""
    b = fleet.join("b-1", GPU)
    fleet.join("c-1", GPU)
    arrive(b, fleet, "x", "y", "waits")
    b.follower.tickets = dict(reversed(b.follower.tickets.items()))
    fleet.leader.forget("b-1", fleet.now_s)
    b.follower.join(1, "lead-1", fleet.now_s)
    fleet.settle()
    assert b.started == ["x", "y"]


def test_a_long_announcement_cut_in_the_middle_by_a_new_leader_is_made_anew() -> None:
    first = LocalFleet()
    b = first.join("b-1", GPU)
    names = [f"t{n}" for n in range(ITEMS_MAX + 500)]
    for name in names:
        b.follower.post(Arrived(name, "llama"), first.now_s)
    b.follower.seek(first.now_s)
    second, third = LocalFleet(2, "second-1"), LocalFleet(3, "third-1")
    b.follower.join(2, "second-1", second.now_s)
    batches = b.follower.take_batches()
    assert len(batches) == 2
    second.leader.receive(batches[0], second.now_s)
    b.hear(Orders(3, "third-1", 0, -1, ()), third)
    third.replicas["b-1"] = b
    third.settle()
    b.hear(Orders(2, "second-1", 2, 0, ()), second)  # too late
    b.send(batches[1:], third)  # of another generation
    third.settle()
    assert (b.follower.epoch, b.follower.leader) == (3, "third-1")
    assert b.started == ["t0", "t1"]
    assert len(b.waiting) == 100
    assert len(b.follower.tickets) == 102


def test_a_new_leader_goes_on_where_the_old_one_was() -> None:
    old = LocalFleet()
    b, c = old.join("b-1", GPU), old.join("c-1", GPU)
    arrive(b, old, "b1", "b2")
    arrive(c, old, "c1")
    arrive(b, old, "b3")
    arrive(c, old, "c2")
    new = LocalFleet(2, "new-1", old.observed(), expected=("b-1", "c-1"))
    new.take_over(c)
    assert c.started == []
    new.take_over(b)
    for ends, starts in (("b1", "c1"), ("b2", "b3"), ("c1", "c2")):
        replica = b if ends in b.follower.tickets else c
        replica.post(Finished(ends), new, settle=True)
        assert starts in (b.started + c.started)
    assert new.observed().accepted == old.observed().accepted


def test_a_ticket_that_finishes_without_running_leaves_nothing_in_the_core(
    fleet: LocalFleet,
) -> None:
    b = fleet.join("b-1", GPU)
    arrive(b, fleet, "x", "y", "waits")
    b.follower.outbox.items.append(Finished("waits"))
    fleet.settle()
    assert set(fleet.leader.decisions.scheduler._book.entries) == {"x", "y"}


def test_a_retry_calls_lent_slots_back(fleet: LocalFleet) -> None:
    other = NodeChanged("other", slots=1, models=("llama",))
    b, c = fleet.join("b-1", GPU), fleet.join("c-1", GPU)
    arrive(b, fleet, "x", "y")
    b.post(other, fleet)
    c.post(other, fleet, settle=True)
    arrive(c, fleet, "z")
    c.post(Finished("z"), fleet, settle=True)
    assert c.follower._borrowed.nodes == ["other"]
    b.post(Returned("x"), fleet, settle=True)
    assert b.started == ["x", "y", "x"]
    assert c.follower._borrowed.nodes == []


@pytest.mark.parametrize(
    "change",
    [
        NodeChanged("gpu", 1, ("llama",)),
        NodeChanged("gpu", 2, ("llama",), state="draining"),
        NodeRemoved("gpu"),
    ],
)
def test_a_node_that_shrinks_or_drains_is_called_back(
    fleet: LocalFleet, change: NodeChanged | NodeRemoved
) -> None:
    b = fleet.join("b-1", GPU)
    arrive(b, fleet, "x", "y")
    b.post(Finished("x"), fleet, settle=True)
    assert b.follower._borrowed.slots == 1
    fleet.replicas["lead-1"].post(GPU, fleet, settle=True)
    if isinstance(change, NodeRemoved):
        fleet.replicas["lead-1"].post(change, fleet, settle=True)
        b.post(change, fleet, settle=True)
    else:
        fleet.replicas["lead-1"].post(change, fleet, settle=True)
    assert b.follower._borrowed.slots == 0


def test_a_replica_that_stops_gives_its_loans_back_and_takes_no_more(fleet: LocalFleet) -> None:
    b, c = fleet.join("b-1", GPU), fleet.join("c-1", GPU)
    arrive(b, fleet, "x", "y")
    b.post(Finished("x"), fleet, settle=True)
    b.post(ShutDown(), fleet, settle=True)
    assert b.follower._borrowed.slots == 0
    b.post(Finished("y"), fleet, settle=True)
    fleet.leader.balance(fleet.now_s)
    fleet.settle()
    assert b.follower._borrowed.slots == 0
    arrive(c, fleet, "one", "two")
    assert c.started == ["one", "two"]


@pytest.mark.parametrize("missing", ["nothing", "a batch", "an announcement"])
def test_what_one_that_goes_had_is_free_at_once(fleet: LocalFleet, missing: str) -> None:
    b, c = fleet.join("b-1", GPU), fleet.join("c-1", GPU)
    heard: list[object] = []
    c.follower.on_notice = heard.append
    arrive(b, fleet, "x", "y")
    b.post(ShutDown(), fleet, settle=True)
    b.post(Finished("x"), fleet)
    if missing == "a batch":
        b.follower.take_batches()
    b.post(Finished("y"), fleet)
    if missing == "an announcement":
        b.follower.join(1, "lead-1", fleet.now_s)
        b.follower.take_batches()
    arrive(c, fleet, "before")
    b.send(b.follower.final_batches(), fleet)
    arrive(c, fleet, "one")
    assert c.started == ["before", "one"]
    assert heard == [MemberLeft("b-1")]
    assert [one.about.member for one in fleet.leader.statuses(fleet.now_s)] == ["lead-1", "c-1"]


def test_one_that_goes_while_announcements_are_gathered_is_not_waited_for() -> None:
    fleet = LocalFleet(expected=("b-1", "c-1"))
    b = fleet.join("b-1", GPU)
    c = fleet.join("c-1", GPU)
    del fleet.replicas["b-1"]
    new = LocalFleet(2, "new-1", expected=("b-1", "c-1"))
    b.follower.join(2, "new-1", new.now_s)
    b.follower.post(Arrived("x", "llama"), new.now_s)
    b.send(b.follower.final_batches(), new)
    new.take_over(c)
    new.leader.tick(new.now_s)
    arrive(c, new, "one", "two")
    assert c.started == ["one", "two"]


def test_a_loan_is_used_for_two_thirds_of_a_lease_after_the_last_stamp(fleet: LocalFleet) -> None:
    b = fleet.join("b-1", GPU)
    arrive(b, fleet, "x")
    b.post(Finished("x"), fleet, settle=True)
    stamp_s = fleet.now_s
    fleet.now_s = stamp_s + LEASE_S * 2 / 3 - 0.01
    b.post(Arrived("soon", "llama"), fleet)
    assert b.started == ["x", "soon"]
    b.post(Finished("soon"), fleet)
    fleet.now_s = stamp_s + LEASE_S * 2 / 3
    b.post(Arrived("late", "llama"), fleet)
    assert b.started == ["x", "soon"]


def test_a_stamp_never_goes_back(fleet: LocalFleet) -> None:
    b = fleet.join("b-1", GPU)
    orders = Orders(
        1, "lead-1", b.follower.outbox.generation, b.follower._received, (HeartbeatReply(),)
    )
    b.hear(orders, fleet)
    assert b.follower.may_use_loans(fleet.now_s + 1.0)


def test_totals_never_go_down_for_one_who_looks(fleet: LocalFleet) -> None:
    b = fleet.join("b-1", GPU)
    arrive(b, fleet, "x", "y", "z")
    b.post(Observed(), fleet, settle=True)
    b.follower.seek(fleet.now_s)
    b.post(Observed(), fleet)
    new = LocalFleet(2, "new-1")
    new.take_over(b)
    b.post(Observed(), new, settle=True)
    assert len(b.totals) == 3
    for before, after in zip(b.totals, b.totals[1:], strict=False):
        assert after.accepted >= before.accepted
        assert after.enqueued >= before.enqueued


def test_loans_that_come_back_twice_count_once(fleet: LocalFleet) -> None:
    b = fleet.join("b-1", GPU)
    arrive(b, fleet, "x")
    b.post(Finished("x"), fleet, settle=True)
    b.follower.outbox.items += [GaveBack("gpu", 1), GaveBack("gpu", 1)]
    fleet.settle()
    assert fleet.leader.decisions.scheduler._book.cluster.nodes["gpu"].lent == 0


@pytest.mark.parametrize("missing", ["orders", "an announcement"])
def test_last_words_are_heard_whatever_was_missed_before_them(
    fleet: LocalFleet, missing: str
) -> None:
    b = fleet.join("b-1", GPU)
    heard: list[object] = []
    b.follower.on_notice = heard.append
    if missing == "orders":
        b.post(Arrived("x", "llama"), fleet)
        b.send(b.follower.take_batches(), fleet)
        assert orders_for(fleet, "b-1")  # they are lost
    else:
        b.follower.join(fleet.leader.epoch, fleet.name, fleet.now_s)
    fleet.leader.members.resign(leaves=True)
    for orders in orders_for(fleet, "b-1"):
        b.hear(orders, fleet)
    assert b.follower.mode == "seeking"
    assert heard == [Resigned(leaves=True)]
    assert b.started == []
