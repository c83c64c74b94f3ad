"""How much may wait, who is refused, and who makes room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core import Arrived, Options, OptionsChanged, Reject, Resumed, Scheduler, Wait
from forebay.errors import NotAllowed

from .rig import Rig

if TYPE_CHECKING:
    from forebay.core import Action


CLASS_AND_DISPLACE = pytest.mark.parametrize("when_full", ["class", "displace"])


def full_rig(*waiting: str, priority: str = "normal", **options: object) -> Rig:
    """One busy node and a queue that these fill to the brim; places fewer than others count."""
    options = {"when_full": "displace", "max_size": len(waiting), **options}
    rig = Rig.busy(**options)
    for name in waiting:
        rig.wait(name, priority=priority)
    return rig


def displaced(actions: list[Action]) -> list[str]:
    assert isinstance(actions[-1], Wait)
    assert all(a.code == "queue_full" for a in actions if isinstance(a, Reject))
    return [action.id for action in actions if isinstance(action, Reject)]


def test_a_user_has_a_bound_of_its_own() -> None:
    rig = Rig(per_user_max=2)
    rig.node()
    rig.start("a0")
    rig.wait("a1")
    rig.wait("a2", priority="high")
    assert rig.refuse("a3", priority="high").code == "user_queue_full"
    rig.wait("b1")
    rig.finish("a0")
    rig.wait("a3")


def test_a_key_is_bounded_in_all_it_has_unfinished() -> None:
    rig = Rig()
    rig.node(slots=5)
    rig.start("a", key="k", key_running_max=2)
    rig.start("b", key="k", key_running_max=2)
    assert rig.refuse("c", key="k", key_running_max=2).code == "user_queue_full"
    rig.start("d", key="other", key_running_max=2)
    rig.finish("a")
    rig.start("c", key="k", key_running_max=2)


def test_bytes_are_bounded_to_the_last_one() -> None:
    rig = Rig(bytes_max=100)
    rig.node()
    rig.start("z", size_bytes=1000)
    rig.wait("a", size_bytes=60)
    assert rig.refuse("b", size_bytes=41).code == "queue_full"
    rig.wait("c", size_bytes=40)
    rig.wait("d", size_bytes=0)
    rig.cancel("a")
    rig.wait("b", size_bytes=60)
    assert rig.look().waiting_bytes == 100


def test_a_return_is_never_refused_and_newcomers_are_until_there_is_room() -> None:
    rig = Rig(max_size=1)
    rig.node()
    rig.start("a")
    rig.wait("b")
    rig.give_rest("n", 5.0)
    rig.come_back("a", exclude=False)
    assert rig.look().waiting == 2
    assert rig.refuse("c").code == "queue_full"
    assert Rig.started(rig.tick(at_s=5.0)) == ["a"]
    assert rig.refuse("c").code == "queue_full"
    rig.finish("a")
    rig.wait("c")


def test_the_reasons_are_asked_in_order() -> None:
    rig = Rig.busy(max_size=1, per_user_max=1, queue_streams=False)
    rig.wait("a")
    assert rig.refuse("a2", stream=True, max_wait_s=0.0).code == "deadline_unreachable"
    assert rig.refuse("a3", stream=True).code == "stream_not_queued"
    assert rig.refuse("a4").code == "user_queue_full"
    assert rig.refuse("b").code == "queue_full"
    rig.give(OptionsChanged(Options(max_size=1, enabled=False)))
    assert rig.refuse("c", stream=True).code == "queue_disabled"


def test_lowered_bounds_drain_and_drop_nothing() -> None:
    rig = Rig.busy(max_size=3)
    for name in ("a", "b", "c"):
        rig.wait(name)
    assert rig.give(OptionsChanged(Options(max_size=1))) == []
    rig.finish("z")
    rig.finish("a")
    assert rig.refuse("d").code == "queue_full"
    assert rig.finish("b") == ["c"]
    rig.wait("d")


def test_what_cannot_change_while_running_is_refused_and_the_rest_stays() -> None:
    rig = Rig()
    for options in (Options(fairness="fifo"), Options(priorities=("one",)), Options(max_size=-1)):
        with pytest.raises(NotAllowed):
            rig.give(OptionsChanged(options))
    with pytest.raises(NotAllowed, match="max_size"):
        Scheduler(Options(max_size=-1))
    with pytest.raises(NotAllowed, match="wait_s_max"):
        Scheduler(Options(wait_s_max=float("nan")))


def test_aging_that_is_turned_off_promotes_nobody_any_more() -> None:
    rig = Rig.busy(aging_s=10.0, wait_s_max=100.0)
    rig.wait("a", priority="low")
    rig.give(OptionsChanged(Options(aging_s=0.0, wait_s_max=100.0)), at_s=5.0)
    rig.tick(at_s=50.0)
    assert rig.look().by_priority == {"high": 0, "normal": 0, "low": 1}


# -- when full


def test_where_nobody_makes_room_even_the_most_urgent_is_refused() -> None:
    rig = full_rig("a1", "a2", priority="low", when_full="reject")
    assert rig.refuse("b", priority="high").code == "queue_full"


@CLASS_AND_DISPLACE
def test_a_higher_class_takes_the_newest_place_of_the_largest_holder_of_the_lowest_class(
    when_full: str,
) -> None:
    rig = full_rig("a1", "a2", "b1", priority="low", when_full=when_full)
    assert displaced(rig.give_arrival("h", priority="high")) == ["a2"]
    assert rig.look().by_priority == {"high": 1, "normal": 0, "low": 2}


@CLASS_AND_DISPLACE
def test_whose_stream_was_answered_makes_room_after_the_others_of_its_user(when_full: str) -> None:
    rig = full_rig("a1", "a2", "a3", max_size=5, priority="low", when_full=when_full)
    for name in ("a4", "a5"):
        rig.wait(name, priority="low", stream=True, answered_after_s=10.0)
    rig.now_s += 5.0
    assert displaced(rig.give_arrival("h1", priority="high")) == ["a5"]
    rig.now_s += 5.0
    order = [displaced(rig.give_arrival(f"h{n}", priority="high"))[0] for n in range(2, 6)]
    assert order == ["a3", "a2", "a1", "a4"]


def test_the_age_of_a_stream_is_known_to_a_core_that_takes_over() -> None:
    rig = Rig.busy(max_size=2)
    stream = Arrived("a2", "m", user="a", priority="low", stream=True, answered_after_s=10.0)
    rig.wait("a1", priority="low")
    rig.give(Resumed(stream, waited_s=9.0))
    rig.now_s += 1.0
    assert displaced(rig.give_arrival("h", priority="high")) == ["a1"]


def test_two_places_fewer_than_the_largest_holder_are_a_claim() -> None:
    rig = full_rig("a1", "a2", "b1")
    assert displaced(rig.give_arrival("c1")) == ["a2"]


def test_one_place_fewer_is_no_claim() -> None:
    rig = full_rig("a1", "a2", "b1")
    assert rig.refuse("b2").code == "queue_full"


def test_one_user_alone_is_dropped_at_the_tail() -> None:
    rig = full_rig("a1", "a2", "a3")
    assert rig.refuse("a4").code == "queue_full"
    assert rig.run_dry("z") == ["a1", "a2", "a3"]


def test_nobody_is_displaced_in_vain_when_the_newcomer_is_still_too_big() -> None:
    rig = full_rig("a1", "a2", bytes_max=10, priority="low")
    assert rig.refuse("h", priority="high", size_bytes=11).code == "queue_full"
    assert rig.look().waiting == 2


def test_nobody_is_displaced_in_vain_by_one_that_will_not_wait() -> None:
    rig = Rig.busy(when_full="displace", max_size=1)
    rig.wait("a", priority="low")
    actions = rig.give_arrival("b", priority="high", max_wait_s=0.0)
    assert {getattr(action, "id", "") for action in actions} == {"b"}
    assert rig.finish("z") == ["a"]


def test_a_newcomer_over_the_bytes_displaces_one_who_holds_enough() -> None:
    rig = Rig.busy(when_full="displace", bytes_max=10)
    rig.wait("a", priority="low", size_bytes=8)
    assert displaced(rig.give_arrival("h", priority="high", size_bytes=9)) == ["a"]


def test_per_user_bounds_are_not_widened_by_displacement() -> None:
    rig = full_rig("a1", "b1", "b2", per_user_max=2)
    assert rig.refuse("b3", priority="high").code == "user_queue_full"


@given(
    when_full=st.sampled_from(["class", "displace", "reject"]),
    size=st.integers(1, 4),
    most_bytes=st.integers(1, 12),
    arrivals=st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from(["high", "normal", "low"]), st.integers(0, 6),
            st.booleans(), st.sampled_from([0.0, 1.0]),
        ),
        max_size=40,
    ),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_no_bound_is_passed_and_one_at_most_makes_room_for_a_newcomer(
    when_full: str,
    size: int,
    most_bytes: int,
    arrivals: list[tuple[str, str, int, bool, float]],
) -> None:
    rig = full_rig(max_size=size, bytes_max=most_bytes, when_full=when_full)
    ranks: dict[str, int] = {}
    ended: list[str] = []
    for number, (user, priority, size_bytes, stream, passed_s) in enumerate(arrivals):
        rig.now_s += passed_s
        name = f"{user}{number}"
        ranks[name] = ("high", "normal", "low").index(priority)
        actions = rig.give_arrival(
            name, priority=priority, size_bytes=size_bytes, stream=stream,
            answered_after_s=2.0 * stream,
        )  # fmt: skip
        out = [action.id for action in actions if isinstance(action, Reject)]
        assert len(out) <= 1
        waiting = [one for one in ranks if one not in ended and one != name]
        if out and out != [name]:
            assert when_full != "reject"
            assert ranks[out[0]] == max(ranks[one] for one in waiting)
            assert ranks[out[0]] > ranks[name] or when_full == "displace"
        ended += out
        seen = rig.look()
        assert seen.waiting <= size
        assert seen.waiting_bytes <= most_bytes
    assert len(ended) == len(set(ended))
    assert rig.look().waiting == len(arrivals) - len(ended)
