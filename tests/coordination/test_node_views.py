"""Many reports of one node, one opinion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.coordination.node_views import NodeViews
from forebay.core import NodeChanged, NodeRemoved

if TYPE_CHECKING:
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
