"""Replicas that come back, twice, or as someone else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordination.pair import new_follower
from forebay.coordination.leader.leader import Leader
from forebay.coordination.membership import NAMESAKES, Roster
from forebay.coordination.protocol.messages import About, ReplicaBatch
from forebay.coordination.store.port import StoreReply
from forebay.core import Arrived, NodeChanged, Options, Totals

if TYPE_CHECKING:
    from forebay.coordination.follower.follower import Follower

LEASE_S = 3.0
NODE = NodeChanged("gpu1", slots=1, models=("llama",))


def announced(member: str, *models: str) -> tuple[Follower, list[ReplicaBatch]]:
    """Return a replica with a request for each model, and what it announces."""
    follower = new_follower(member, Options(), LEASE_S)
    follower.post(NODE, 0.0)
    for number, model in enumerate(models):
        follower.post(Arrived(f"{member}/{number}", model), 0.0)
    follower.join(1, "aaaaaaaa-1", 0.0)
    return follower, follower.take_batches()


def leader_of(*members: str) -> Leader:
    leader = Leader(About("aaaaaaaa-1"), 1, Options(), LEASE_S, members)
    leader.begin(Totals(), {}, 0.0)
    leader.tick(LEASE_S)
    return leader


def test_a_stream_that_is_read_again_brings_no_one_back() -> None:
    leader = leader_of()
    _, batches = announced("bbbbbbbb-1", "llama")
    for batch in batches:
        leader.receive(batch, 3.0)
    assert len(leader.statuses(3.0)) == 1
    leader.forget("bbbbbbbb-1", 7.0)
    for batch in batches:
        leader.receive(batch, 7.0)
    assert leader.statuses(7.0) == ()
    again, _ = announced("bbbbbbbb-1", "llama")
    again.join(1, "aaaaaaaa-1", 8.0)
    for batch in again.take_batches():
        leader.receive(batch, 8.0)
    assert len(leader.statuses(8.0)) == 1


def test_a_gateway_that_restarts_is_no_namesake_but_a_second_one_is() -> None:
    me, before = About("aaaaaaaa-2", "http://a:7800"), About("aaaaaaaa-1", "http://a:7800")
    roster = Roster(me, LEASE_S)
    both, alone = StoreReply(1, "", 0.0, (before, me)), StoreReply(1, "", 0.0, (me,))
    assert not any(roster.has_namesake(both) for _ in range(3))
    assert not roster.has_namesake(alone)
    said = [roster.has_namesake(both) for _ in range(3 * NAMESAKES)]
    assert said.count(True) == 1


def test_new_settings_change_what_is_said_of_a_gateway_and_of_no_other() -> None:
    me, other = About("aaaaaaaa-1", settings="old"), About("bbbbbbbb-1", settings="old")
    roster = Roster(me, LEASE_S)
    roster.update(StoreReply(1, "", 0.0, (me, other)), 1.0)
    roster.introduce(About("aaaaaaaa-1", settings="new"))
    assert [view.settings for view in roster.views((), "", 1.0)] == ["new", "old"]
