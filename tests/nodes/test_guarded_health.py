"""What a guard's heartbeats, and their absence, do to the health of its node; pure."""

from __future__ import annotations

from forebay.nodes.health import LOAD_STEP, NodeHealth

from .test_health import REPORT, offline, online


def test_a_silent_guard_takes_the_node_out_and_keeps_its_models() -> None:
    health = online()
    change = health.fell_silent(6.0)
    assert change is not None
    assert (change.state, change.models) == ("offline", ("a", "b"))
    assert health.fell_silent(7.0) is None


def test_good_probes_do_not_bring_it_back_but_the_next_heartbeat_does() -> None:
    health = online()
    health.fell_silent(6.0)
    assert health.probe_succeeded(REPORT, 10.0).state == "offline"
    change = health.heard(4, 0.5, 12.0)
    assert change is not None
    assert change.state == "online"
    assert health.next_probe_s() == 12.0


def test_a_heartbeat_does_not_bring_back_a_node_that_probes_found_dead() -> None:
    health = offline()
    health.fell_silent(1.0)
    health.heard(4, None, 2.0)
    assert health.state == "offline"


def test_the_guard_s_slots_come_before_what_the_backend_reports() -> None:
    health = online()
    change = health.heard(2, 0.5, 1.0)
    assert change is not None
    assert change.slots == 2
    assert health.probe_succeeded(REPORT, 10.0).slots == 2


def test_a_load_that_has_hardly_changed_is_not_told() -> None:
    health = NodeHealth("gpu1", slots=4)
    health.probe_succeeded(REPORT, 0.0)
    assert health.heard(4, 0.5 + LOAD_STEP / 2, 1.0) is None
    change = health.heard(4, 0.5 + LOAD_STEP, 2.0)
    assert change is not None
    assert change.gpu_load == 0.5 + LOAD_STEP
