"""Many reports of one node, one opinion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.coordination.leader.lending import Loans
from forebay.coordination.leader.node_views import NodeViews, OwnNodeViews
from forebay.core import NodeChanged, NodeRemoved, Options

if TYPE_CHECKING:
    from typing import Any

    from forebay.core.events import NodeState


def node(slots: int = 4, state: NodeState = "online", load: float = 0.0) -> NodeChanged:
    return NodeChanged("gpu", slots, ("llama",), state=state, gpu_load=load)


def test_the_latest_report_is_believed() -> None:
    views = NodeViews()
    views.change("a", node(load=0.1), 0.0)
    assert views.change("b", node(load=0.9), 0.0) == (node(load=0.9), False)
    assert views.change("a", node(load=0.2), 0.0) == (node(load=0.2), False)


def test_the_smallest_count_of_slots_is_used_of_those_who_reach_the_node() -> None:
    views = NodeViews()
    views.change("a", node(2), 0.0)
    assert views.change("b", node(8), 0.0)[0].slots == 2
    views.change("a", node(2, "offline"), 0.0)
    assert views.change("b", node(8), 0.0)[0].slots == 8


def test_of_a_count_that_the_core_finds_the_reports_do_not_matter() -> None:
    """What they repeat may be old: a node that refuses has one less at once."""
    views = NodeViews()
    found = replace(node(4), slots_kind="found")
    assert views.change("a", found, 0.0)[0].slots == 4
    told = views.change_slots("gpu", 7)
    assert told is not None
    assert told.slots == 7
    assert views.change("b", found, 0.0)[0].slots == 7
    assert views.change("b", node(1), 0.0)[0].slots == 1, "it has just come back"
    assert views.change("b", found, 0.0)[0].slots == 7


def test_one_who_drains_it_drains_it_for_all() -> None:
    views = NodeViews()
    views.change("a", node(state="draining"), 0.0)
    assert views.change("b", node(), 0.0)[0].state == "draining"
    assert views.change("b", node(state="offline"), 0.0)[0].state == "offline"
    views.change("a", node(), 0.0)
    assert views.change("b", node(), 0.0)[0].state == "online"


def test_a_node_that_fails_for_one_is_news_for_the_others_once() -> None:
    views = NodeViews()
    assert views.change("a", node(state="offline"), 0.0) == (node(state="offline"), False)
    views.change("a", node(), 0.0)
    assert views.change("a", node(state="offline"), 0.0)[1]
    assert not views.change("a", node(state="offline"), 0.0)[1]


def test_a_node_is_gone_with_its_last_report() -> None:
    views = NodeViews()
    views.change("a", node(2), 0.0)
    views.change("b", node(4), 0.0)
    assert views.remove("a", "gpu", 0.0) == node(4)
    assert views.merged == {"gpu": node(4)}
    assert views.remove("a", "gpu", 0.0) is None
    assert views.forget("b", 0.0) == [NodeRemoved("gpu")]
    assert views.forget("b", 0.0) == []
    assert views.merged == {}


def test_one_who_comes_and_cannot_reach_a_node_does_not_take_it_from_those_who_can() -> None:
    views = NodeViews()
    views.change("a", node(), 0.0)
    assert views.change("b", node(state="offline"), 0.0) == (node(), False)
    assert views.change("b", node(), 0.0)[0].state == "online"
    assert views.change("b", node(state="offline"), 0.0)[0].state == "offline"  # now it is news


def gone(away_s: float, **more: Any) -> NodeChanged:
    return NodeChanged("gpu", 4, ("llama",), state="offline", away_s=away_s, **more)


def test_a_node_is_gone_since_the_last_of_them_saw_it_fail() -> None:
    views = NodeViews()
    views.change("a", node(), 0.0)
    views.change("b", node(), 0.0)
    assert views.change("a", gone(3.0), 10.0)[0].away_s == 0.0  # b has not looked yet
    assert views.change("b", gone(1.0), 12.0)[0].away_s == 1.0
    change = views.remove("b", "gpu", 20.0)
    assert isinstance(change, NodeChanged)
    assert change.away_s == 13.0  # a's three seconds, and ten since


def test_a_node_is_new_while_it_has_answered_none_of_them() -> None:
    views = NodeViews()
    assert views.change("a", gone(5.0, is_new=True), 0.0)[0].is_new
    assert views.change("b", gone(0.0, is_new=True), 1.0)[0].away_s == 0.0
    assert not views.change("b", node(), 2.0)[0].is_new
    assert not views.change("b", gone(0.0), 3.0)[0].is_new


def test_what_drains_for_one_is_away_since_then() -> None:
    views = NodeViews()
    views.change("a", replace(node(state="draining"), away_s=4.0), 0.0)
    merged, _ = views.change("b", node(), 6.0)
    assert (merged.state, merged.away_s) == ("draining", 10.0)


def test_what_a_replica_says_again_later_has_grown_older() -> None:
    mine = OwnNodeViews()
    mine.change(gone(2.0), 10.0)
    mine.change(replace(node(state="loading"), name="other", ready_in_s=5.0), 10.0)
    said = mine.at(13.0)
    assert said["gpu"].away_s == 5.0
    assert said["other"].ready_in_s == 2.0
    assert mine.at(30.0)["other"].ready_in_s == 0.0
    mine.remove("gpu")
    assert list(mine.at(13.0)) == ["other"]


def test_of_the_room_in_a_cache_the_latest_reading_counts_whoever_reports_last() -> None:
    views = NodeViews()
    views.change("a", replace(node(), kv_free_tokens=500, kv_reading=7), 0.0)
    merged, _ = views.change("b", node(), 1.0)  # its guard does not speak to this one
    assert (merged.kv_free_tokens, merged.kv_reading) == (500, 7)
    merged, _ = views.change("c", replace(node(), kv_free_tokens=-1, kv_reading=8), 2.0)
    assert (merged.kv_free_tokens, merged.kv_reading) == (-1, 8)


def test_nothing_is_lent_of_a_node_that_tells_of_its_cache() -> None:
    loans = Loans(Options(), lambda _: True)
    assert not loans.must_recall(node(), 0)
    assert loans.must_recall(replace(node(), kv_free_tokens=500), 0)
