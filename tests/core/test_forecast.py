"""Forecasts: made of what was measured, told in time, and corrected by what really happened."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from forebay.core import Expire, KeyLimits, Observed, Reject
from forebay.core.forecast import Line, usable_slots
from forebay.core.outlook import come_again_s, newcomer
from harness.traces.calls import Traffic, draw_calls
from harness.traces.replay import LOSING, MIXED, QUIET, Replay, Trouble, judge

from .rig import Rig

SHORT, LONG = 100, 5_000
SHORT_S, LONG_S = 1.0, 10.0


def measured_rig(*services_s: float, slots: int = 1, **options: Any) -> Rig:
    """A node on which these service times have been measured, one after the other; it is busy."""
    rig = Rig(**{"max_size": 10_000, "wait_s_max": 1e9, **options})
    rig.node(slots=slots)
    for number, service_s in enumerate(services_s):
        rig.start(f"past{number}")
        rig.finish(f"past{number}", after_s=service_s)
    for number in range(slots):
        rig.start(f"z{number}")
    return rig


def two_applications(**options: Any) -> Rig:
    """A busy node on which two applications have been measured, one with long prompts."""
    rig = Rig(**{"wait_s_max": 1e9, "max_size": 1000, "fairness": "fifo", **options})
    rig.node(slots=1)
    for number in range(400):
        tokens, service_s = ((SHORT, SHORT_S), (LONG, LONG_S))[number % 2]
        rig.start(f"past{number}", prompt_tokens=tokens)
        rig.finish(f"past{number}", after_s=service_s)
    rig.start("run", prompt_tokens=SHORT)
    return rig


def p50_s(told: Any) -> float:
    """Return a median that must be there."""
    assert told.p50_s is not None
    assert told.p90_s is not None
    assert told.p50_s <= told.p90_s
    return float(told.p50_s)


# -- the header's number, and those who ask


def test_the_header_is_those_ahead_times_the_mean_over_the_slots() -> None:
    rig = measured_rig(8.0, 12.0, slots=2)
    told = [rig.wait(f"a{number}").estimate_s for number in range(5)]
    assert told == [0.0, 5.0, 10.0, 15.0, 20.0]


@pytest.mark.parametrize(
    ("service_s", "ahead", "said"), [(10.004, 3, 30.0), (0.07, 100, 7.0), (1234.0, 3, 3690.0)]
)
def test_the_headers_mean_has_three_digits(service_s: float, ahead: int, said: float) -> None:
    rig = measured_rig(service_s)
    for number in range(ahead):
        rig.wait(f"a{number}")
    assert rig.wait("a-last").estimate_s == said


def test_the_finer_estimate_counts_one_end_more() -> None:
    rig = measured_rig(10.0, 10.0, 10.0, slots=2)
    told = [p50_s(rig.wait(f"a{number}")) for number in range(4)]
    assert told == pytest.approx([5.0, 10.0, 15.0, 20.0])


def test_only_answers_that_went_well_are_measured() -> None:
    rig = measured_rig(10.0)
    rig.finish("z0", after_s=1000.0, ok=False)
    rig.start("y")
    rig.wait("a")
    assert rig.wait("b").estimate_s == 10.0


def test_the_mean_is_of_the_last_hundred() -> None:
    rig = measured_rig(*[1000.0] * 5, *[2.0] * 100)
    rig.wait("a")
    assert rig.wait("b").estimate_s == pytest.approx(2.0)
    assert rig.look().average_service_s == pytest.approx(2.0)


def test_each_lane_has_measurements_of_its_own() -> None:
    rig = Rig()
    rig.node("n", 1, "m", "other")
    rig.start("x")
    rig.finish("x", after_s=10.0)
    rig.start("y", "other")
    assert rig.wait("a").p50_s is not None
    assert rig.wait("b", "other").p50_s is None


def test_the_same_numbers_are_told_to_one_who_asks() -> None:
    rig = measured_rig(10.0)
    rig.wait("a")
    on_arrival, asked = rig.wait("b"), rig.describe("b")
    assert (asked.position, asked.estimate_s) == (on_arrival.position, on_arrival.estimate_s)
    assert (asked.p50_s, asked.p90_s) == (on_arrival.p50_s, on_arrival.p90_s)


def test_one_that_waits_is_told_less_and_less_until_the_next_start() -> None:
    rig = measured_rig(10.0, 10.0, 10.0)
    rig.wait("a")
    rig.wait("b")
    told = [(p50_s(rig.describe("a")), p50_s(rig.describe("b")))]
    for _ in range(4):
        rig.now_s += 2.5
        told.append((p50_s(rig.describe("a")), p50_s(rig.describe("b"))))
    assert [one for one, _ in told] == pytest.approx([10.0, 7.5, 5.0, 2.5, 2.0], abs=1.0)
    assert [two for _, two in told] == pytest.approx([20.0, 17.5, 15.0, 12.5, 12.0], abs=2.0)


def test_what_was_promised_comes_back_with_the_start() -> None:
    rig = measured_rig(10.0)
    promised = rig.wait("a").p50_s
    rig.finish("z0", after_s=4.0)
    assert rig.routed[-1].predicted_s == promised
    assert rig.routed[-1].waited_s == 4.0


def test_a_new_request_of_the_usual_class_does_not_wait_behind_those_below() -> None:
    rig = measured_rig(10.0, 10.0, 10.0)
    for number in range(20):
        rig.wait(f"later{number}", priority="low")
    assert rig.look().lanes[0].p50_s == pytest.approx(10.0)
    rig.wait("first", priority="high")
    rig.wait("second")
    assert rig.look().lanes[0].p50_s == pytest.approx(30.0, rel=0.1)


# -- where nothing can be known


def test_no_number_is_told_before_anything_was_measured() -> None:
    rig = measured_rig(max_size=1, wait_s_max=5.0)
    told = rig.wait("a")
    assert (told.estimate_s, told.p50_s, told.p90_s) == (None, None, None)
    assert rig.look().lanes[0].p50_s is None
    refused = Rig.only(Reject, [rig.refuse("b")])
    assert (refused.retry_after_s, refused.estimate_s) == (None, None)
    assert Rig.only(Expire, rig.tick(at_s=5.0)).retry_after_s is None


def test_no_number_is_told_while_no_node_is_up() -> None:
    rig = measured_rig(10.0)
    p50_s(rig.wait("a"))
    rig.node(state="offline")
    rig.node("other", state="starting")
    told = rig.describe("a")
    assert (told.estimate_s, told.p50_s, told.p90_s) == (None, None, None)


def test_nothing_is_refused_for_a_deadline_before_anything_was_measured() -> None:
    rig = measured_rig()
    rig.wait("a", max_wait_s=0.001)


# -- refusals


def test_an_own_limit_is_refused_only_where_two_thirds_of_the_estimate_are_over_it() -> None:
    rig = measured_rig(10.0, 10.0, 10.0)
    refused = rig.refuse("a", max_wait_s=6.5)
    assert refused.code == "deadline_unreachable"
    assert refused.estimate_s == pytest.approx(10.0)
    rig.wait("b", max_wait_s=7.0)


def test_the_operators_own_limit_refuses_nobody_in_advance() -> None:
    rig = measured_rig(100.0, wait_s_max=10.0)
    rig.wait("a")
    rig.wait("b", max_wait_s=10.0)
    rig.wait("c", max_wait_s=1e9)


def test_when_to_try_again_is_the_wait_of_a_newcomer() -> None:
    rig = measured_rig(10.0, 10.0, 10.0, max_size=2, wait_s_max=5.0)
    rig.wait("a")
    rig.wait("b")
    refused = rig.refuse("c")
    assert refused.retry_after_s == pytest.approx(30.0)
    expired = [a for a in rig.tick(at_s=rig.now_s + 5.0) if isinstance(a, Expire)]
    assert len(expired) == 2
    for action in expired:
        assert action.retry_after_s == pytest.approx(10.0, rel=0.1)


# -- sizes


@pytest.mark.parametrize(("tokens", "each_s"), [(SHORT, SHORT_S), (LONG, LONG_S)])
def test_a_wait_is_as_long_as_those_ahead_usually_take(tokens: int, each_s: float) -> None:
    rig = two_applications()
    for number in range(20):
        rig.wait(f"ahead{number}", prompt_tokens=tokens)
    assert p50_s(rig.wait("mine", prompt_tokens=SHORT)) == pytest.approx(21 * each_s, rel=0.1)


def test_a_long_request_is_not_behind_itself() -> None:
    rig = two_applications()
    rig.wait("first", prompt_tokens=SHORT)
    told = rig.wait("mine", prompt_tokens=LONG)
    assert p50_s(told) == pytest.approx(2 * SHORT_S, rel=0.1)


def test_what_waits_for_the_rate_of_its_key_waits_for_no_slot() -> None:
    rig = two_applications(key_limits={"k": KeyLimits(requests_per_minute=1)}, wait_s_max=600.0)
    rig.finish("run")
    rig.start("first", key="k", prompt_tokens=SHORT)
    for number in range(3):
        rig.wait(f"paced{number}", key="k", prompt_tokens=LONG)
    rig.wait("ahead", prompt_tokens=SHORT)
    assert p50_s(rig.wait("mine", prompt_tokens=SHORT)) == pytest.approx(2 * SHORT_S, rel=0.1)


# -- how fast the queue moves


def test_promises_that_are_always_too_low_are_raised() -> None:
    rig = measured_rig(*[10.0] * 3)
    first = p50_s(rig.wait("x"))
    rig.cancel("x")
    for number in range(60):  # every run is interrupted by a hidden pause of thirty seconds
        rig.wait(f"w{number}", user="w")
        rig.finish(rig.routed[-1].id, after_s=40.0, ok=False)
    assert p50_s(rig.wait("x")) > 1.5 * first


def test_lost_slots_count_at_once() -> None:
    rig = Rig(wait_s_max=1e9, max_size=1000, fairness="round_robin")
    rig.node("n", 8)
    running = [rig.start(f"z{number}").id for number in range(8)]
    for number in range(100):
        rig.wait(f"w{number}", user=f"u{number}")
        rig.now_s += 1.0
        running.append(rig.finish(running.pop(0))[0])
    for number in range(79):
        rig.wait(f"x{number}", user=f"v{number}")
    whole_s = p50_s(rig.wait("last", user="last"))
    rig.cancel("last")
    rig.node("n", 4)
    assert p50_s(rig.wait("last", user="last")) == pytest.approx(2 * whole_s, rel=0.1)


def test_an_idle_hour_says_nothing_about_the_pace() -> None:
    told_s = []
    for pause_s in (0.0, 3600.0):
        rig = measured_rig(*[10.0] * 20)
        running = "z0"
        for number in range(20):
            rig.wait(f"w{number}")
            running = rig.finish(running, after_s=10.0)[0]
        rig.now_s += pause_s
        rig.wait("a")
        told_s.append(p50_s(rig.wait("b")))
    assert told_s[0] == pytest.approx(told_s[1])


def test_those_of_a_class_below_are_told_that_others_overtake() -> None:
    rig = Rig(wait_s_max=1e9, max_size=1000, fairness="fifo")
    rig.node(slots=8)
    running = [rig.start(f"z{number}").id for number in range(8)]
    for number in range(4):
        rig.wait(f"first{number}", priority="low")
    for number in range(200):  # of four slots that free up, three go to the class above
        rig.wait(f"w{number}", priority="normal" if number % 4 else "low")
        running.append(rig.finish(running.pop(0), after_s=1.0)[0])
    told = rig.wait("last", priority="low")
    assert told.position == 5
    assert p50_s(told) == pytest.approx(5 * 4.0, rel=0.4)


def test_later_arrivals_of_others_count_where_users_take_turns() -> None:
    rig = Rig(wait_s_max=1e9, max_size=1000, fairness="round_robin")
    rig.node()
    running = rig.start("z").id
    for number in range(100):  # of four slots that free up, three go to callers who come and go
        if number % 4:
            rig.wait(f"guest{number}", user=f"guest{number}")
        else:
            rig.wait(f"heavy{number}", user="heavy")
            rig.wait(f"more{number}", user="heavy")
        running = rig.finish(running, after_s=1.0)[0]
    told = rig.wait("last", user="heavy")
    assert told.estimate_s is not None
    assert p50_s(told) > 1.5 * told.estimate_s


def test_a_slot_that_is_kept_for_a_better_node_is_none() -> None:
    rig = Rig(fairness="fifo")
    rig.node("fast")
    rig.node("slow")
    for number in range(10):
        names = [f"a{number}", f"b{number}"]
        nodes = {rig.start(name, max_wait_s=0.0).node: name for name in names}
        rig.finish(nodes["fast"], after_s=1.0)
        rig.finish(nodes["slow"], after_s=4.0)
        rig.now_s += 400.0
    lane = rig.core._book.cluster.lanes["m", "openai"]
    assert rig.start("c").node == "fast"
    assert usable_slots(lane) == 2
    assert rig.wait("held").reason == "better_node"
    assert usable_slots(lane) == 1
    for name in "defgh":  # so many that one of them does not wait for it any more
        rig.arrive(name)
    assert rig.routed[-1].node == "slow"
    assert usable_slots(lane) == 2


def test_a_load_is_told_to_those_behind_it() -> None:
    rig = Rig(swap_wait_s=0.0)
    rig.node("n", 1, "cold", "m", loaded=("m",), load_s=10.0)
    rig.start("c", "cold")
    rig.finish("c", after_s=14.0)
    rig.start("a")
    rig.finish("a", after_s=14.0)
    rig.start("d", "cold")
    rig.now_s += 3.0
    assert p50_s(rig.wait("e", "cold")) == pytest.approx((10.0 - 3.0) + 4.0)


# -- outcomes


def test_an_outcome_enters_when_its_wait_has_ended() -> None:
    line = Line()
    told = [line.promise(8.0, behind_own=False, header_s=0.0) for _ in range(3)]
    assert len({one.p50_s for one in told}) == 1
    for one in told:
        line.learn(one, 16.0)
    later = line.promise(8.0, behind_own=False, header_s=0.0)
    assert 8.0 < later.p50_s < 16.0
    assert line.promise(8.0, behind_own=True, header_s=0.0).p50_s == 8.0
    assert line.promise(80.0, behind_own=False, header_s=0.0).p50_s == 80.0


def test_nine_in_ten_is_what_nine_in_ten_waits_stayed_below() -> None:
    line, rng = Line(), Random(1)
    for _ in range(2_000):
        line.learn(line.promise(4.0, behind_own=False, header_s=0.0), 8.0 * rng.random())
    told = line.promise(4.0, behind_own=False, header_s=0.0)
    assert told.p90_s == pytest.approx(7.2, rel=0.1)


def test_what_leaves_before_its_turn_is_no_outcome_and_leaves_nothing_behind() -> None:
    rig = measured_rig(10.0, key_limits={"k": KeyLimits(requests_per_minute=60)}, wait_s_max=50.0)
    for number in range(10):
        rig.wait(f"a{number}", key="k")
    forecast = rig.core._book.forecast
    rig.cancel("a0")
    rig.tick(at_s=rig.now_s + 60.0)
    for line in forecast._lines.values():
        assert (line.sizes, line.owed, line._ratios) == ({}, {}, {})


def test_lanes_that_are_gone_are_forgotten() -> None:
    rig = Rig(max_size=1000)
    for number in range(300):
        rig.node("n", 1, f"m{number}")
        rig.start(f"a{number}", f"m{number}")
        rig.wait(f"b{number}", f"m{number}")
        rig.cancel(f"b{number}")
        rig.finish(f"a{number}")
    assert len(rig.core._book.forecast._lines) < 150


# -- what would be


def state_of(thing: Any, seen: set[int] | None = None) -> Any:
    """Return all that can be reached from an object, as plain values."""
    seen = set() if seen is None else seen
    if thing is None or isinstance(thing, int | float | str | bytes | frozenset):
        return thing
    if isinstance(thing, dict):
        return [(state_of(key, seen), state_of(value, seen)) for key, value in thing.items()]
    if isinstance(thing, list | tuple) or type(thing).__name__ == "deque":
        return [state_of(one, seen) for one in thing]
    if id(thing) in seen or callable(thing):
        return type(thing).__name__
    seen.add(id(thing))
    names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    names += getattr(thing, "__dict__", {})
    return {
        name: state_of(getattr(thing, name, None), seen)
        for name in names
        if name not in ("actions", "__weakref__")
    }


@pytest.mark.parametrize("fairness", ["fifo", "round_robin", "tokens"])
@pytest.mark.parametrize("seed", range(3))
def test_asking_changes_nothing(seed: int, fairness: str) -> None:
    rig, rng = Rig(fairness=fairness, max_size=40, wait_s_max=1e9), Random(seed)
    rig.node(slots=3)
    running = [rig.start(f"z{number}").id for number in range(3)]
    for number in range(200):
        rig.now_s += rng.random()
        rig.arrive(f"{rng.choice('abcde')}{number}", priority=rng.choice(["high", "low"]))
        if rng.random() < 0.8:
            running += rig.finish(running.pop(rng.randrange(len(running))))
    book = rig.core._book
    waiting = [one for one in book.entries.values() if one.state == "waiting"]
    lane = waiting[0].queue.lane
    before = state_of(book)
    for entry in waiting:
        rig.describe(entry.id)
        assert come_again_s(book, entry.arrival, lane) is not None
        assert newcomer(book, entry.arrival, entry.queue) is not None
    book.forecast.last_in_lane_s(lane, rig.now_s)
    rig.give(Observed())
    assert state_of(book) == before
    rig.finish(running[0])
    assert state_of(book) != before


# -- random days


traffics = st.builds(
    Traffic,
    calls=st.integers(300, 900),
    span_s=st.floats(100.0, 600.0),
    cv=st.sampled_from([0.5, 1.2, 3.0]),
    tide=st.floats(0.0, 0.9),
    bursts=st.integers(0, 6),
    prompt_median=st.just(1_000.0),
    prompt_sigma=st.floats(0.1, 1.5),
    output_median=st.just(130.0),
    output_sigma=st.floats(0.1, 1.5),
    zipf=st.floats(0.0, 1.5),
)


@given(
    traffic=traffics,
    load=st.floats(0.5, 1.3),
    fairness=st.sampled_from(["fifo", "round_robin", "tokens"]),
    trouble=st.sampled_from([QUIET, MIXED, LOSING, MIXED._replace(node_lost=True)]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.generate))
def test_no_promise_is_far_beyond_the_longest_wait(
    traffic: Traffic, load: float, fairness: Any, trouble: Trouble, seed: int
) -> None:
    replay = Replay(draw_calls(traffic, Random(seed)), load, fairness, trouble, seed=seed)
    replayed = replay.run()
    assert all(0.0 < one.p50_s < one.p90_s for one in replayed.promises)
    if replayed.longest_s > 5.0:  # of shorter ones, the first service alone may be longer
        assert judge(replayed).largest <= 3.0
