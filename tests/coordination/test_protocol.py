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

from .pair import LEASE_S, Desk, Office, orders_for

GPU = NodeChanged("gpu", slots=2, models=("llama",))


@pytest.fixture
def office() -> Office:
    return Office()


def arrive(desk: Desk, office: Office, *names: str) -> None:
    for name in names:
        desk.post(Arrived(name, "llama"), office, settle=True)


def test_a_replica_gets_its_slots_and_then_waits(office: Office) -> None:
    b = office.join("b-1", GPU)
    arrive(b, office, "x", "y", "z")
    assert b.started == ["x", "y"]
    assert b.waiting == ["z"]
    b.post(Finished("x"), office, settle=True)
    assert b.started == ["x", "y", "z"]


def test_a_batch_that_is_repeated_counts_once(office: Office) -> None:
    b = office.join("b-1", GPU)
    b.post(Arrived("x", "llama"), office)
    b.post(Arrived("y", "llama"), office)
    b.post(Cancelled("y"), office)
    batches = b.follower.take_batches()
    b.send(batches + batches, office)
    office.settle()
    assert b.started == ["x"]
    assert office.observed().accepted == 2


def test_after_a_batch_that_was_lost_everything_is_announced_anew(office: Office) -> None:
    b = office.join("b-1", GPU)
    arrive(b, office, "x")
    b.post(Arrived("y", "llama"), office)
    b.post(Finished("x"), office)
    assert b.follower.take_batches()  # and nobody hears them
    generation = b.follower.generation
    arrive(b, office, "z")
    assert b.follower.generation == generation + 1
    assert sorted(b.started) == ["x", "y", "z"]


def test_batches_out_of_order_end_in_the_same_state(office: Office) -> None:
    b = office.join("b-1", GPU)
    b.post(Arrived("x", "llama"), office)
    first = b.follower.take_batches()
    b.post(Arrived("y", "llama"), office)
    b.send(b.follower.take_batches(), office)
    b.send(first, office)
    office.settle()
    assert sorted(b.started) == ["x", "y"]


def test_orders_that_are_repeated_or_come_after_a_gap_start_nothing_twice(office: Office) -> None:
    b = office.join("b-1", GPU)
    b.post(Arrived("x", "llama"), office)
    b.send(b.follower.take_batches(), office)
    [orders] = orders_for(office, "b-1")
    for _ in range(2):
        b.hear(orders, office)
    assert b.started == ["x"]
    b.post(Arrived("y", "llama"), office)
    b.send(b.follower.take_batches(), office)
    assert orders_for(office, "b-1")  # lost
    b.post(Arrived("z", "llama"), office, settle=True)
    assert b.started == ["x", "y"]
    assert "z" in b.waiting


@pytest.mark.parametrize(("epoch", "generation"), [(0, 1), (1, 0), (1, 2)])
def test_orders_of_another_epoch_or_generation_are_refused(
    office: Office, epoch: int, generation: int
) -> None:
    b = office.join("b-1", GPU)
    b.post(Arrived("x", "llama"), office)
    b.send(b.follower.take_batches(), office)
    [orders] = orders_for(office, "b-1")
    b.hear(Orders(epoch, "lead-1", generation, orders.number, orders.items), office)
    assert b.started == []


def test_what_runs_is_never_started_again(office: Office) -> None:
    b = office.join("b-1", GPU)
    arrive(b, office, "x")
    generation, number = b.follower.generation, b.follower._received
    b.hear(Orders(1, "lead-1", generation, number, (Route("x", "gpu"),)), office)
    assert b.started == ["x"]


def test_an_epoch_that_is_given_twice_is_that_of_the_one_who_speaks(office: Office) -> None:
    b = office.join("b-1", GPU)
    generation = b.follower.generation
    b.hear(Orders(1, "other-1", generation, 0, ()), office)
    assert (b.follower.leader, b.follower.generation) == ("other-1", generation + 1)


def test_slots_of_one_that_announces_anew_go_to_nobody_meanwhile(office: Office) -> None:
    """Otherwise those who wait would start in slots that it is about to say are taken."""
    b, c = office.join("b-1", GPU), office.join("c-1", GPU)
    arrive(b, office, "x", "y")
    arrive(c, office, "waits")
    b.follower.join(1, "lead-1", office.now_s)
    office.settle()
    assert c.started == []
    b.post(Finished("x"), office, settle=True)
    assert c.started == ["waits"]


def test_loans_of_one_that_announces_anew_come_back(office: Office) -> None:
    b, c = office.join("b-1", GPU), office.join("c-1", GPU)
    arrive(b, office, "x", "y")
    for name in "xy":
        b.post(Finished(name), office, settle=True)
    assert b.follower._borrowed.slots == 2
    arrive(b, office, "lent")
    b.follower.join(1, "lead-1", office.now_s)
    office.settle()
    arrive(c, office, "one", "two")
    assert (c.started, c.waiting) == (["one"], ["two"])


def test_one_that_dies_while_it_announces_leaves_nothing_behind(office: Office) -> None:
    b, c = office.join("b-1", GPU), office.join("c-1", GPU)
    arrive(b, office, "x", "y")
    arrive(c, office, "waits")
    arrive(b, office, *(f"b{n}" for n in range(ITEMS_MAX // 100)))
    b.follower.join(1, "lead-1", office.now_s)
    [batch] = b.follower.take_batches()
    office.leader.receive(type(batch)("b-1", batch.generation, 0, batch.items[:2]), office.now_s)
    office.now_s += LEASE_S
    c.follower.send_heartbeat(office.now_s)
    c.send(c.follower.take_batches(), office)
    office.leader.tick(office.now_s)
    office.settle()
    assert c.started == ["waits"]


def test_what_runs_is_heard_before_what_waits_and_could_start(office: Office) -> None:
    """A replica that was forgotten comes back: its running ones hold slots that seem free."""
    b = office.join("b-1", GPU)
    office.join("c-1", GPU)
    arrive(b, office, "x", "y", "waits")
    b.follower.tickets = dict(reversed(b.follower.tickets.items()))
    office.leader.forget("b-1", office.now_s)
    b.follower.join(1, "lead-1", office.now_s)
    office.settle()
    assert b.started == ["x", "y"]


def test_a_long_announcement_cut_in_the_middle_by_a_new_leader_is_made_anew() -> None:
    first = Office()
    b = first.join("b-1", GPU)
    names = [f"t{n}" for n in range(ITEMS_MAX + 500)]
    for name in names:
        b.follower.post(Arrived(name, "llama"), first.now_s)
    b.follower.seek()
    second, third = Office(2, "second-1"), Office(3, "third-1")
    b.follower.join(2, "second-1", second.now_s)
    batches = b.follower.take_batches()
    assert len(batches) == 2
    second.leader.receive(batches[0], second.now_s)
    b.hear(Orders(3, "third-1", 0, -1, ()), third)
    third.desks["b-1"] = b
    third.settle()
    b.hear(Orders(2, "second-1", 2, 0, ()), second)  # too late
    b.send(batches[1:], third)  # of another generation
    third.settle()
    assert (b.follower.epoch, b.follower.leader) == (3, "third-1")
    assert b.started == ["t0", "t1"]
    assert len(b.waiting) == 100
    assert len(b.follower.tickets) == 102


def test_a_new_leader_goes_on_where_the_old_one_was() -> None:
    old = Office()
    b, c = old.join("b-1", GPU), old.join("c-1", GPU)
    arrive(b, old, "b1", "b2")
    arrive(c, old, "c1")
    arrive(b, old, "b3")
    arrive(c, old, "c2")
    new = Office(2, "new-1", old.observed(), expected=("b-1", "c-1"))
    new.take_over(c)
    assert c.started == []
    new.take_over(b)
    for ends, starts in (("b1", "c1"), ("b2", "b3"), ("c1", "c2")):
        desk = b if ends in b.follower.tickets else c
        desk.post(Finished(ends), new, settle=True)
        assert starts in (b.started + c.started)
    assert new.observed().accepted == old.observed().accepted


def test_a_ticket_that_finishes_without_running_leaves_nothing_in_the_core(office: Office) -> None:
    b = office.join("b-1", GPU)
    arrive(b, office, "x", "y", "waits")
    b.follower._outbox.items.append(Finished("waits"))
    office.settle()
    assert set(office.leader._scheduler._book.entries) == {"x", "y"}


def test_a_retry_calls_lent_slots_back(office: Office) -> None:
    other = NodeChanged("other", slots=1, models=("llama",))
    b, c = office.join("b-1", GPU), office.join("c-1", GPU)
    arrive(b, office, "x", "y")
    b.post(other, office)
    c.post(other, office, settle=True)
    arrive(c, office, "z")
    c.post(Finished("z"), office, settle=True)
    assert c.follower._borrowed.nodes == ["other"]
    b.post(Returned("x"), office, settle=True)
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
    office: Office, change: NodeChanged | NodeRemoved
) -> None:
    b = office.join("b-1", GPU)
    arrive(b, office, "x", "y")
    b.post(Finished("x"), office, settle=True)
    assert b.follower._borrowed.slots == 1
    office.desks["lead-1"].post(GPU, office, settle=True)
    if isinstance(change, NodeRemoved):
        office.desks["lead-1"].post(change, office, settle=True)
        b.post(change, office, settle=True)
    else:
        office.desks["lead-1"].post(change, office, settle=True)
    assert b.follower._borrowed.slots == 0


def test_a_replica_that_stops_gives_its_loans_back_and_takes_no_more(office: Office) -> None:
    b, c = office.join("b-1", GPU), office.join("c-1", GPU)
    arrive(b, office, "x", "y")
    b.post(Finished("x"), office, settle=True)
    b.post(ShutDown(), office, settle=True)
    assert b.follower._borrowed.slots == 0
    b.post(Finished("y"), office, settle=True)
    office.leader.balance(office.now_s)
    office.settle()
    assert b.follower._borrowed.slots == 0
    arrive(c, office, "one", "two")
    assert c.started == ["one", "two"]


@pytest.mark.parametrize("missing", ["nothing", "a batch", "an announcement"])
def test_what_one_that_goes_had_is_free_at_once(office: Office, missing: str) -> None:
    b, c = office.join("b-1", GPU), office.join("c-1", GPU)
    heard: list[object] = []
    c.follower.on_notice = heard.append
    arrive(b, office, "x", "y")
    b.post(ShutDown(), office, settle=True)
    b.post(Finished("x"), office)
    if missing == "a batch":
        b.follower.take_batches()
    b.post(Finished("y"), office)
    if missing == "an announcement":
        b.follower.join(1, "lead-1", office.now_s)
        b.follower.take_batches()
    arrive(c, office, "before")
    b.send(b.follower.final_batches(), office)
    arrive(c, office, "one")
    assert c.started == ["before", "one"]
    assert heard == [MemberLeft("b-1")]
    assert [one.about.member for one in office.leader.statuses(office.now_s)] == ["lead-1", "c-1"]


def test_one_that_goes_while_announcements_are_gathered_is_not_waited_for() -> None:
    office = Office(expected=("b-1", "c-1"))
    b = office.join("b-1", GPU)
    c = office.join("c-1", GPU)
    del office.desks["b-1"]
    new = Office(2, "new-1", expected=("b-1", "c-1"))
    b.follower.join(2, "new-1", new.now_s)
    b.follower.post(Arrived("x", "llama"), new.now_s)
    b.send(b.follower.final_batches(), new)
    new.take_over(c)
    new.leader.tick(new.now_s)
    arrive(c, new, "one", "two")
    assert c.started == ["one", "two"]


def test_a_loan_is_used_for_two_thirds_of_a_lease_after_the_last_stamp(office: Office) -> None:
    b = office.join("b-1", GPU)
    arrive(b, office, "x")
    b.post(Finished("x"), office, settle=True)
    stamp_s = office.now_s
    office.now_s = stamp_s + LEASE_S * 2 / 3 - 0.01
    b.post(Arrived("soon", "llama"), office)
    assert b.started == ["x", "soon"]
    b.post(Finished("soon"), office)
    office.now_s = stamp_s + LEASE_S * 2 / 3
    b.post(Arrived("late", "llama"), office)
    assert b.started == ["x", "soon"]


def test_a_stamp_never_goes_back(office: Office) -> None:
    b = office.join("b-1", GPU)
    orders = Orders(1, "lead-1", b.follower.generation, b.follower._received, (HeartbeatReply(),))
    b.hear(orders, office)
    assert b.follower.may_use_loans(office.now_s + 1.0)


def test_totals_never_go_down_for_one_who_looks(office: Office) -> None:
    b = office.join("b-1", GPU)
    arrive(b, office, "x", "y", "z")
    b.post(Observed(), office, settle=True)
    b.follower.seek()
    b.post(Observed(), office)
    b.follower.go_standalone(office.now_s)
    b.post(Observed(), office)
    new = Office(2, "new-1")
    new.take_over(b)
    b.post(Observed(), new, settle=True)
    assert len(b.totals) == 4
    for before, after in zip(b.totals, b.totals[1:], strict=False):
        assert after.accepted >= before.accepted
        assert after.enqueued >= before.enqueued


def test_loans_that_come_back_twice_count_once(office: Office) -> None:
    b = office.join("b-1", GPU)
    arrive(b, office, "x")
    b.post(Finished("x"), office, settle=True)
    b.follower._outbox.items += [GaveBack("gpu", 1), GaveBack("gpu", 1)]
    office.settle()
    assert office.leader._scheduler._book.cluster.nodes["gpu"].lent == 0


@pytest.mark.parametrize("missing", ["orders", "an announcement"])
def test_last_words_are_heard_whatever_was_missed_before_them(office: Office, missing: str) -> None:
    b = office.join("b-1", GPU)
    heard: list[object] = []
    b.follower.on_notice = heard.append
    if missing == "orders":
        b.post(Arrived("x", "llama"), office)
        b.send(b.follower.take_batches(), office)
        assert orders_for(office, "b-1")  # they are lost
    else:
        b.follower.join(office.leader.epoch, office.name, office.now_s)
    office.leader.members.resign(leaves=True)
    for orders in orders_for(office, "b-1"):
        b.hear(orders, office)
    assert b.follower.mode == "seeking"
    assert heard == [Resigned(leaves=True)]
    assert b.started == []
