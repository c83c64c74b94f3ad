"""Nodes that are gone or have never answered, with several replicas: the leader decides for all."""

from __future__ import annotations

from coordination.pair import new_follower
from forebay.coordination.leader.leader import Leader
from forebay.coordination.protocol.messages import About, Announced, Down, ReplicaBatch, Up
from forebay.core import Arrived, NodeChanged, Options, Reject, Resumed, Route, Totals, Wait

ME, OTHER = About("11111111-1"), About("22222222-1")


class Fleet:
    """A leader, and another replica that talks to it."""

    def __init__(self) -> None:
        self.leader = Leader(ME, 2, Options(), 5.0, [ME.member, OTHER.member])
        self.leader.begin(Totals(), {}, 0.0)
        self.numbers = {ME.member: 0, OTHER.member: 0}

    def say(self, about: About, now_s: float, *items: Up) -> list[Down]:
        """Let a replica say something; return what the other one is told."""
        number = self.numbers[about.member]
        self.numbers[about.member] = number + 1
        self.leader.receive(ReplicaBatch(about.member, 1, number, items), now_s)
        orders = self.leader.members.orders_for(OTHER.member)
        told = [] if orders is None else list(orders.items)
        return [item for item in told if isinstance(item, Wait | Route | Reject)]


def gone(away_s: float, *, is_new: bool = False) -> NodeChanged:
    models = () if is_new else ("llama",)
    return NodeChanged("gpu1", 1, models, state="offline", away_s=away_s, is_new=is_new)


UP = NodeChanged("gpu1", slots=1, models=("llama",))


def test_requests_of_a_replica_wait_for_a_node_that_is_gone_for_all() -> None:
    fleet = Fleet()
    fleet.say(ME, 0.0, gone(20.0), Announced(ME))
    fleet.say(OTHER, 0.0, gone(15.0), Announced(OTHER))
    (told,) = fleet.say(OTHER, 14.0, Arrived("a", "llama"))
    assert isinstance(told, Wait)
    assert told.reason == "offline"
    (told,) = fleet.say(OTHER, 15.0, Arrived("b", "llama"))
    assert isinstance(told, Reject)
    assert told.code == "no_node"
    (told,) = fleet.say(OTHER, 16.0, UP)
    assert isinstance(told, Route)
    assert told.id == "a"


def test_a_model_that_nobody_knows_is_waited_for_while_a_node_is_new_for_all() -> None:
    fleet = Fleet()
    fleet.say(ME, 0.0, gone(0.0, is_new=True), Announced(ME))
    fleet.say(OTHER, 0.0, gone(0.0, is_new=True), Announced(OTHER))
    (told,) = fleet.say(OTHER, 1.0, Arrived("a", "other"))
    assert isinstance(told, Wait)
    assert told.reason == "starting"
    (told,) = fleet.say(OTHER, 2.0, UP)
    assert isinstance(told, Reject)
    assert (told.id, told.code) == ("a", "model_not_found")


def test_a_new_leader_goes_on_counting_where_the_last_one_was() -> None:
    follower = new_follower(OTHER.member, Options(), 5.0)
    follower.post(gone(2.0), 100.0)
    follower.post(Arrived("a", "llama"), 101.0)
    follower.join(2, ME.member, 125.0)
    (batch,) = follower.take_batches()
    (view,) = [item for item in batch.items if isinstance(item, NodeChanged)]
    assert view.away_s == 27.0
    fleet = Fleet()
    fleet.say(ME, 0.0, Announced(ME))
    fleet.say(OTHER, 0.0, *batch.items)
    (told,) = fleet.say(OTHER, 4.0, Arrived("b", "llama"))
    assert isinstance(told, Reject)
    assert told.code == "no_node"


def test_what_waited_for_a_start_is_taken_over_and_goes_on_waiting() -> None:
    fleet = Fleet()
    fleet.say(ME, 0.0, gone(0.0, is_new=True), Announced(ME))
    waits = Resumed(Arrived("a", "llama"), seq=7, waited_s=3.0)
    assert not fleet.say(OTHER, 0.0, gone(3.0, is_new=True), waits, Announced(OTHER))
    (told,) = fleet.say(OTHER, 2.0, UP)
    assert isinstance(told, Route)
    assert told.waited_s == 5.0
