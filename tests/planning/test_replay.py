"""Replays whose outcome can be told by hand."""

from __future__ import annotations

import pytest

from forebay.planning.fleet import PlannedNode
from forebay.planning.summary import replay_series, summarise_replay

from .making import play, request, waits


def test_requests_wait_for_each_other_as_they_would_in_real_time() -> None:
    replayed = play([request(0.0, 2.0), request(0.0, 2.0), request(1.0, 2.0), request(9.0)])
    assert waits(replayed) == [0.0, 2.0, 3.0, 0.0]
    assert [sample.total_s for sample in replayed.samples] == [2.0, 4.0, 5.0, 1.0]
    assert replayed.elapsed_s == 10.0


def test_another_slot_takes_the_wait_away() -> None:
    requests = [request(0.0, 2.0), request(0.0, 2.0)]
    assert waits(play(requests, PlannedNode("n1", 2, ("m",)))) == [0.0, 0.0]


def test_a_slow_node_takes_longer() -> None:
    replayed = play([request(0.0), request(0.5)], PlannedNode("n1", 1, ("m",), slowness=2.0))
    assert waits(replayed) == [0.0, 1.5]


def test_refusals_timeouts_and_those_who_leave_are_told_apart() -> None:
    requests = [
        request(0.0, 10.0),
        request(1.0, leaves_after_s=2.0),
        request(2.0),
        request(4.0, max_wait_s=3.0),
        request(9.0, 0.5),
    ]
    replayed = play(requests, max_size=1, wait_s_max=60.0)
    codes = [sample.code for sample in replayed.samples]
    assert codes == ["", "cancelled", "queue_full", "queue_timeout", ""]
    assert [sample.wait_s for sample in replayed.samples if not sample.code] == [0.0, 1.0]
    summary = summarise_replay(replayed, [PlannedNode("n1", 1, ("m",))])
    assert (summary.refused, summary.timed_out, summary.left, summary.all.ok) == (1, 1, 1, 2)


def test_a_time_limit_holds_also_while_nothing_else_happens() -> None:
    replayed = play([request(0.0, 500.0), request(1.0)], wait_s_max=60.0)
    assert [sample.code for sample in replayed.samples] == ["", "queue_timeout"]
    assert replayed.depths == [(0.0, 0), (1.0, 1), (61.0, 0)]


def test_who_has_a_slot_before_patience_ends_is_served_to_the_end() -> None:
    requests = [request(0.0), request(0.5, 5.0, leaves_after_s=2.0), request(3.0)]
    replayed = play(requests)
    assert [sample.code for sample in replayed.samples] == ["", "", ""]
    assert waits(replayed) == [0.0, 0.5, 3.0]


def test_the_rules_are_the_schedulers_own() -> None:
    requests = [request(0.0), *(request(0.1, user=user) for user in "aab")]
    assert waits(play(requests, fairness="fifo"))[1:] == pytest.approx([0.9, 1.9, 2.9])
    assert waits(play(requests, fairness="round_robin"))[1:] == pytest.approx([0.9, 2.9, 1.9])


def test_loading_a_model_takes_time_and_is_counted() -> None:
    node = PlannedNode("n1", 2, ("a", "b"))
    wanted = [(0.0, "a"), (0.0, "a"), (20.0, "b"), (40.0, "a"), (60.0, "a")]
    requests = [request(at_s, model=model) for at_s, model in wanted]
    replayed = play(requests, node, load_s=5.0)
    assert [sample.total_s for sample in replayed.samples] == [6.0, 6.0, 6.0, 6.0, 1.0]
    assert replayed.loads == 3
    held = play(requests, node, load_s=0.0)
    assert ([sample.total_s for sample in held.samples], held.loads) == ([1.0] * 5, 0)


def test_jobs_take_idle_slots_and_are_in_no_figure() -> None:
    requests = [request(0.0, 4.0, job=True), request(1.0), request(1.0, job=True), request(2.0)]
    replayed = play(requests)
    assert waits(replayed) == [3.0, 3.0]
    assert max(depth for _, depth in replayed.depths) == 2
    assert replayed.elapsed_s == 7.0


def test_a_model_that_no_node_has_is_refused_as_the_gateway_would() -> None:
    replayed = play([request(0.0), request(1.0, model="x")], PlannedNode("n1", 1, ("m",)))
    assert [sample.code for sample in replayed.samples] == ["", "model_not_found"]


def test_slots_are_busy_for_as_long_as_requests_come_and_no_longer() -> None:
    nodes = [PlannedNode("n1", 1, ("m",)), PlannedNode("n2", 1, ("m",))]
    replayed = play([request(0.0, 5.0), request(10.0, 50.0)], *nodes)
    assert summarise_replay(replayed, nodes).utilisation == pytest.approx(0.25)


def test_the_depth_over_time_goes_on_where_nothing_changes() -> None:
    replayed = play([request(0.0, 30.0), request(0.1), request(0.2)])
    series = replay_series(replayed)
    at_s = [one.start_s for one in series.requests.bins]
    assert max(series.depth) == series.depth[at_s.index(10.0)] == 2
    assert series.depth[at_s.index(30.0) :] == [1, 0, 0]
    assert len(series.depth) == len(series.requests.bins)
