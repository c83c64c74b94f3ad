"""Jobs: background work that takes only what nobody else wants."""

from __future__ import annotations

import pytest

from .rig import Rig


def test_a_job_takes_an_idle_slot_at_once() -> None:
    rig = Rig()
    rig.node()
    assert rig.start("j", job=True).node == "n"


def test_every_live_class_runs_before_any_job() -> None:
    rig = Rig.busy()
    rig.wait("j1", job=True, priority="high")
    rig.wait("low", priority="low")
    rig.wait("j2", job=True)
    rig.wait("normal")
    assert rig.run_dry("z") == ["normal", "low", "j1", "j2"]


def test_jobs_are_outside_the_bounds() -> None:
    rig = Rig.busy(max_size=1, bytes_max=10, per_user_max=1)
    for number in range(5):
        rig.wait(f"j{number}", job=True, size_bytes=1000)
    rig.wait("j", size_bytes=10)
    assert rig.refuse("k").code == "queue_full"
    picture = rig.look()
    assert (picture.waiting, picture.waiting_jobs, picture.waiting_bytes) == (1, 5, 10)


@pytest.mark.parametrize("options", [{"enabled": False}, {"max_size": 0}, {"wait_s_max": 0.0}])
def test_jobs_wait_even_where_requests_may_not(options: dict[str, object]) -> None:
    rig = Rig.busy(**options)
    rig.wait("j", job=True, stream=True, max_wait_s=0.0)
    assert rig.finish("z") == ["j"]


def test_jobs_wait_without_limit() -> None:
    rig = Rig.busy(wait_s_max=5.0)
    rig.wait("j", job=True, max_wait_s=1.0)
    assert rig.core.next_deadline_s() is None
    assert rig.tick(at_s=1e6) == []
    assert rig.finish("z") == ["j"]


def test_jobs_wait_for_a_node_that_is_away() -> None:
    rig = Rig()
    rig.node(state="offline", away_s=60.0)
    assert rig.wait("j", job=True).reason == "offline"
    assert rig.refuse("a").code == "no_node"
    assert Rig.started(rig.node()) == ["j"]


def test_no_job_ages_into_a_live_class() -> None:
    rig = Rig.busy(aging_s=1.0, wait_s_max=1000.0)
    rig.wait("j", job=True)
    rig.tick(at_s=100.0)
    rig.wait("low", priority="low")
    assert rig.run_dry("z") == ["low", "j"]


def test_a_job_that_came_back_is_first_among_jobs_only() -> None:
    rig = Rig()
    rig.node()
    rig.start("j1", job=True)
    rig.wait("j2", job=True)
    rig.wait("low", priority="low")
    assert Rig.started(rig.come_back("j1", exclude=False)) == ["low"]
    assert rig.run_dry("low") == ["j1", "j2"]


def test_users_take_turns_among_jobs_too() -> None:
    rig = Rig.busy()
    for name in ("a1", "a2", "a3", "b1"):
        rig.wait(name, job=True)
    assert rig.run_dry("z") == ["a1", "b1", "a2", "a3"]


def test_jobs_do_not_touch_the_turns_of_requests() -> None:
    rig = Rig()
    rig.node()
    for number in range(5):
        rig.arrive(f"j{number}", user="a", job=True)
    rig.run_dry("j0")
    rig.start("z")
    for name in ("a1", "b1", "a2"):
        rig.wait(name)
    assert rig.run_dry("z") == ["a1", "b1", "a2"]


def test_jobs_are_not_displaced_and_displace_nobody() -> None:
    rig = Rig.busy(max_size=1, when_full="displace")
    rig.wait("j", job=True)
    rig.wait("low", priority="low")
    rig.wait("k", job=True, user="other")
    rig.wait("high", priority="high")
    assert rig.run_dry("z") == ["high", "j", "k"]
