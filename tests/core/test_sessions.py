"""Sessions: one conversation, one FIFO, one running at a time."""

from __future__ import annotations

import pytest

from forebay.core import (
    Expire,
    Reject,
    Revoked,
    Route,
    ShutDown,
    Supplied,
    Supply,
)

from .rig import Rig


def session_rig(*held: str, slots: int = 2, **options: object) -> Rig:
    """A node with room, on which `s0` of session s runs; the others stand behind it."""
    rig = Rig(**options)
    rig.node(slots=slots)
    rig.start("s0", session="s")
    for name in held:
        assert rig.wait(name, session="s").reason == "session"
    return rig


def test_a_free_slot_does_not_tempt_the_second_of_a_session() -> None:
    rig = session_rig("s1", "s2")
    assert rig.look().held == 2
    assert rig.describe("s1").state == "held"
    assert rig.run_dry("s0") == ["s1", "s2"]


def test_other_sessions_and_none_are_not_held_up() -> None:
    rig = session_rig("s1", slots=3)
    rig.start("t0", session="t")
    rig.start("x")


@pytest.mark.parametrize("ok", [True, False])
def test_a_failure_does_not_poison_the_session(ok: bool) -> None:
    rig = session_rig("s1")
    assert rig.finish("s0", ok=ok) == ["s1"]


def test_the_session_goes_on_when_its_running_one_is_cancelled() -> None:
    rig = session_rig("s1")
    assert Rig.started(rig.cancel("s0")) == ["s1"]


def test_one_cancelled_while_held_is_passed_over() -> None:
    rig = session_rig("s1", "s2")
    assert rig.cancel("s1") == []
    assert rig.finish("s0") == ["s2"]


def test_a_retry_stays_at_the_head_of_its_session() -> None:
    rig = session_rig("s1")
    actions = rig.come_back("s0", exclude=False)
    assert Rig.started(actions) == ["s0"]
    assert rig.run_dry("s0") == ["s1"]


def test_the_next_follows_when_the_head_is_revoked_or_expires_in_line() -> None:
    rig = Rig(wait_s_max=5.0)
    rig.node()
    rig.start("z")
    for name in ("s0", "s1", "s2"):
        rig.wait(name, session="s")
    rig.give(Revoked("s0"))
    assert rig.describe("s1").state == "waiting"
    told = Rig.only(Expire, rig.tick(at_s=5.0))
    assert told.id == "s1"
    assert rig.describe("s2").state == "waiting"
    assert rig.finish("z") == ["s2"]


def test_the_waiting_clock_stands_still_while_held() -> None:
    rig = session_rig("s1", slots=1, wait_s_max=5.0)
    rig.tick(at_s=100.0)
    rig.wait("x", priority="high")
    assert rig.finish("s0") == ["x"]
    assert rig.tick(at_s=104.75) == []
    told = Rig.only(Expire, rig.tick(at_s=105.0))
    assert (told.id, told.waited_s) == ("s1", 105.0)


def test_held_entries_count_in_the_bounds() -> None:
    rig = session_rig("s1", "s2", max_size=2)
    assert rig.refuse("s3", session="s").code == "queue_full"
    assert rig.look().waiting == 2


def test_a_session_has_a_bound_of_its_own_that_counts_the_running_one() -> None:
    rig = session_rig("s1", per_session_max=2)
    assert rig.refuse("s2", session="s").code == "session_queue_full"
    rig.start("t0", session="t")
    rig.finish("s0")
    rig.wait("s2", session="s")


def test_entries_of_one_session_may_differ_in_model_and_class() -> None:
    rig = Rig()
    rig.node("n", 1, "m")
    rig.node("o", 1, "other")
    rig.start("s0", session="s")
    rig.wait("s1", "other", session="s", priority="low")
    rig.wait("s2", session="s", priority="high")
    assert rig.finish("s0") == ["s1"]
    assert rig.finish("s1") == ["s2"]


def test_the_next_of_a_session_goes_where_its_cache_is() -> None:
    rig = Rig()
    rig.node("n1")
    rig.node("n2", gpu_load=1.0)
    rig.start("s0", session="s", affinity="s")
    rig.wait("s1", session="s", affinity="s")
    rig.finish("s0")
    assert [route.node for route in rig.routed] == ["n1", "n1"]


def test_the_next_of_a_session_leaves_the_freed_slot_to_whoever_waits_for_it() -> None:
    rig = Rig()
    rig.node("n1", 1, "m")
    rig.start("s0", session="s", affinity="s")
    rig.node("n2", 1, "other")
    rig.wait("x")
    rig.wait("s1", "other", session="s")
    assert set(rig.finish("s0")) == {"s1", "x"}


def test_a_held_entry_survives_the_absence_of_its_only_node() -> None:
    rig = Rig()
    rig.node("n", 1, "m", "other")
    rig.start("s0", "other", session="s")
    rig.wait("s1", session="s")
    rig.node("n", 1, "other")
    rig.node("n", 1, "m", "other")
    assert rig.finish("s0") == ["s1"]


def test_the_next_in_line_survives_an_expiry_while_no_node_is_there() -> None:
    rig = Rig(wait_s_max=5.0)
    rig.node()
    rig.start("z")
    rig.wait("s0", session="s")
    rig.wait("s1", session="s")
    rig.give_removal("n")
    rig.finish("z")
    told = Rig.only(Expire, rig.tick(at_s=5.0))
    assert (told.id, told.code) == ("s0", "no_node")
    rig.now_s = 6.0
    assert Rig.started(rig.node()) == ["s1"]


def test_one_that_displaced_its_own_predecessor_is_not_held_for_ever() -> None:
    rig = Rig(max_size=1, when_full="displace")
    rig.node()
    rig.start("z")
    rig.wait("s0", session="s", priority="low")
    rig.arrive("s1", session="s", priority="high")
    assert rig.finish("z") == ["s1"]


def test_shutdown_starts_nobody_in_the_place_of_one_it_rejects() -> None:
    rig = Rig()
    rig.node("n1", 1, "m")
    rig.node("n2", 1, "other")
    rig.start("z")
    rig.wait("s0", session="s")
    rig.wait("s1", "other", session="s")
    rig.wait("s2", "other", session="s", deferred=True)
    answers = rig.give(ShutDown())
    assert [type(answer) for answer in answers] == [Reject] * 3


def test_what_ended_is_told_before_what_starts_in_its_place() -> None:
    rig = Rig(wait_s_max=5.0)
    rig.node("n1", 1, "m")
    rig.node("n2", 1, "other")
    rig.start("z")
    rig.wait("s0", session="s")
    rig.wait("s1", "other", session="s")
    assert [type(action) for action in rig.tick(at_s=5.0)] == [Expire, Route]


def test_no_patience_at_all_is_judged_when_the_turn_comes() -> None:
    rig = session_rig("s1", slots=1)
    rig.wait("s2", session="s", max_wait_s=0.0)
    rig.wait("s3", session="s", max_wait_s=0.0)
    assert rig.run_dry("s0") == ["s1", "s2", "s3"]
    rig.start("x0", session="x")
    rig.wait("x1", session="x", max_wait_s=0.0)
    rig.wait("h", priority="high")
    assert rig.finish("x0") == ["h"]
    rig.tick(at_s=rig.now_s)
    assert rig.look().waiting == 0


# -- sizes that are supplied later


def test_sizes_are_asked_for_only_when_an_entry_heads_its_session() -> None:
    rig = session_rig(slots=1)
    assert Supply("s1") not in rig.give_arrival("s1", session="s", deferred=True)
    rig.wait("s2", session="s", deferred=True)
    rig.finish("s0")
    assert rig.describe("s1").state == "held"
    assert Rig.started(rig.give(Supplied("s1", 10, 20, 30))) == ["s1"]


def test_the_first_of_a_session_is_asked_at_once() -> None:
    rig = Rig()
    rig.node()
    assert Supply("d") in rig.give_arrival("d", session="s", deferred=True)
    assert Supply("e") in rig.give_arrival("e", deferred=True)
    assert Rig.started(rig.give(Supplied("e", 1))) == ["e"]


def test_a_supplied_size_counts_from_then_on() -> None:
    rig = Rig(bytes_max=100)
    rig.node()
    rig.start("z")
    rig.wait("d", deferred=True)
    rig.give(Supplied("d", 1, 0, 80))
    assert rig.look().waiting_bytes == 80
    assert rig.refuse("a", size_bytes=21).code == "queue_full"
    rig.wait("b", size_bytes=20)


def test_a_second_or_a_stray_supply_changes_nothing() -> None:
    rig = Rig()
    rig.node()
    rig.start("z")
    rig.wait("a", size_bytes=5)
    rig.give(Supplied("a", 1, 0, 50))
    rig.give(Supplied("nobody", 1, 0, 50))
    assert rig.look().waiting_bytes == 5
