"""What waits is known by the sizes of its prompts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.rig import Rig
from forebay.core import KeyLimits
from forebay.core.estimates import ServiceTimes
from forebay.core.sizes import Size, Sizes

RANKS = 3
SHORT, LONG = 100, 5_000
SHORT_S, LONG_S = 1.0, 10.0


def two_applications(slots: int = 1, runs: int = SHORT, speed: float = 1.0) -> Rig:
    """A busy node on which two applications have been measured, one with long prompts."""
    rig = Rig(wait_s_max=1e9, max_size=1000, fairness="fifo")
    rig.node(slots=slots)
    for number in range(400):
        tokens, service_s = ((SHORT, SHORT_S), (LONG, LONG_S))[number % 2]
        rig.start(f"past{number}", prompt_tokens=tokens)
        rig.finish(f"past{number}", after_s=service_s)
    if speed != 1.0:
        for number in range(600):
            rig.start(f"slow{number}", prompt_tokens=SHORT)
            rig.finish(f"slow{number}", after_s=SHORT_S / speed)
    for number in range(slots):
        rig.start(f"run{number}", prompt_tokens=runs)
    return rig


def promised_behind(rig: Rig, tokens: int, count: int = 20) -> float:
    for number in range(count):
        rig.wait(f"ahead{number}", prompt_tokens=tokens)
    told = rig.wait("mine", prompt_tokens=SHORT).p50_s
    assert told is not None
    return told


@pytest.mark.parametrize(("tokens", "each_s"), [(SHORT, SHORT_S), (LONG, LONG_S)])
def test_a_wait_is_as_long_as_those_ahead_usually_take(tokens: int, each_s: float) -> None:
    assert promised_behind(two_applications(), tokens) == pytest.approx(21 * each_s, rel=0.1)


def test_a_long_request_is_not_behind_itself() -> None:
    rig = two_applications()
    rig.wait("first", prompt_tokens=SHORT)
    told = rig.wait("mine", prompt_tokens=LONG).p50_s
    assert told == pytest.approx(2 * SHORT_S, rel=0.1)


@pytest.mark.parametrize(("tokens", "left_s"), [(SHORT, SHORT_S), (LONG, LONG_S)])
def test_what_runs_ends_when_its_size_says(tokens: int, left_s: float) -> None:
    told = two_applications(runs=tokens).wait("mine").p50_s
    assert told == pytest.approx(left_s, rel=0.1)


@pytest.mark.parametrize("slots", [2, 20, 60])
@pytest.mark.parametrize("after_s", [0.0, 0.3, 0.7])
def test_the_first_of_many_ends_when_its_size_says(slots: int, after_s: float) -> None:
    rig = two_applications(slots, runs=LONG)
    rig.cancel("run1")
    rig.start("short", prompt_tokens=SHORT)
    rig.wait("earlier")
    rig.cancel("earlier")  # whoever is told something meanwhile changes nothing
    rig.now_s += after_s
    assert rig.wait("mine").p50_s == pytest.approx(SHORT_S - after_s, rel=0.05)


def test_once_the_first_has_ended_it_is_the_turn_of_the_next() -> None:
    rig = two_applications(slots=20, runs=LONG)
    for number in (1, 2):
        rig.cancel(f"run{number}")
        rig.start(f"short{number}", prompt_tokens=SHORT)
        rig.now_s += 0.4 * SHORT_S
    rig.wait("next", prompt_tokens=LONG)  # when they end is known, and soon no longer all true
    assert rig.finish("short1", after_s=0.2 * SHORT_S) == ["next"]
    rig.now_s += 0.1 * SHORT_S
    assert rig.wait("mine").p50_s == pytest.approx(0.3 * SHORT_S, rel=0.2)


def test_others_that_run_end_at_another_time() -> None:
    rig = two_applications(slots=20, runs=LONG)
    assert rig.wait("earlier").p50_s == pytest.approx(LONG_S, rel=0.05)
    rig.cancel("earlier")
    rig.now_s += LONG_S
    for number in range(20):
        rig.finish(f"run{number}")
        rig.start(f"short{number}", prompt_tokens=SHORT)
    assert rig.wait("mine").p50_s == pytest.approx(SHORT_S, rel=0.05)


def test_what_is_left_of_a_service_varies_as_its_own_size_does() -> None:
    rig = Rig(wait_s_max=1e9, max_size=1000, fairness="fifo")
    rig.node(slots=1)
    for number in range(200):  # short prompts take very different times, long ones always the same
        rig.start(f"short{number}", prompt_tokens=SHORT)
        rig.finish(f"short{number}", after_s=(0.5, 20.0)[number % 2])
        rig.start(f"long{number}", prompt_tokens=LONG)
        rig.finish(f"long{number}", after_s=LONG_S)
    rig.start("run", prompt_tokens=LONG)
    rig.now_s += 0.9 * LONG_S
    assert rig.wait("mine").p50_s == pytest.approx(0.1 * LONG_S, rel=0.05)


def test_a_slower_node_is_slower_for_all_sizes_at_once() -> None:
    rig = two_applications()
    for number in range(40):  # the short ones take twice as long; no long one has ended since
        rig.wait(f"next{number}", prompt_tokens=SHORT)
        rig.finish(f"next{number - 1}" if number else "run0", after_s=2 * SHORT_S)
    told = promised_behind(rig, LONG)
    assert told > 1.2 * 20 * LONG_S


def test_of_idle_hours_the_last_services_are_remembered() -> None:
    rig = two_applications(speed=0.5)
    assert promised_behind(rig, SHORT) == pytest.approx(21 * SHORT_S / 0.5, rel=0.15)


def test_retries_and_those_that_leave_are_counted_once() -> None:
    rig = two_applications(slots=2)
    sizes = rig.core._book.cluster.lanes["m", "openai"].times.by_size
    rig.wait("a", prompt_tokens=LONG)
    rig.wait("b", prompt_tokens=LONG)
    rig.come_back("run0")  # and goes first: its node failed it, and there is no other
    rig.cancel("b")
    assert sum(sizes.counted) == rig.look().waiting
    rig.cancel("a")
    rig.cancel("run0")
    assert sum(sizes.counted) == rig.look().waiting == 0


def test_what_waits_for_the_rate_of_its_key_is_not_counted_as_waiting_for_a_slot() -> None:
    rig = Rig(wait_s_max=600.0, key_limits={"k": KeyLimits(requests_per_minute=2)})
    rig.node(slots=1)
    rig.start("past", prompt_tokens=SHORT)
    rig.finish("past", after_s=SHORT_S)
    sizes = rig.core._book.cluster.lanes["m", "openai"].times.sizes()
    rig.start("run", key="k", prompt_tokens=LONG)
    rig.wait("next", key="k", prompt_tokens=LONG)
    rig.wait("last", key="k", prompt_tokens=LONG)
    assert sum(sizes.counted) == 2
    assert rig.finish("run", after_s=SHORT_S) == ["next"]
    assert sum(sizes.counted) == 1
    assert rig.finish("next", after_s=SHORT_S) == []  # its turn, but its key has used its rate
    assert sum(sizes.counted) == 0
    rig.cancel("last")
    assert sizes.counted == [0] * len(sizes.counted)
    assert sizes.waiting_s == [0.0] * len(sizes.waiting_s)


def test_services_that_take_longer_than_expected_are_noticed_at_once() -> None:
    times = ServiceTimes(RANKS)
    for _ in range(150):
        times.add(SHORT_S, SHORT)
        assert times.slowness() == pytest.approx(1.0)
    for _ in range(20):
        times.add(2 * SHORT_S, SHORT)
        assert times.slowness() > 1.0
    assert times.slowness() > 1.05
    assert times.mean_s() == pytest.approx(1.2)


def test_who_starts_before_anything_was_measured_does_not_make_its_size_look_free() -> None:
    rig = Rig(wait_s_max=600.0, max_size=1000, fairness="fifo")
    rig.node(slots=1)
    rig.start("first", prompt_tokens=SHORT)
    rig.wait("long", prompt_tokens=LONG)
    rig.node(slots=2)  # and the long one starts
    rig.finish("first", after_s=SHORT_S)
    sizes = rig.core._book.cluster.lanes["m", "openai"].times.sizes()
    assert sizes.of(LONG).mean_s == SHORT_S  # what is usual, as for any size that is not known


tokens = st.sampled_from([0, 1, 7, 100, 5_000, 10**30])
ranks = st.integers(0, RANKS - 1)
moves = st.one_of(
    st.tuples(st.just("join"), tokens, ranks),
    st.tuples(st.just("leave"), st.integers(0, 50), ranks),
    st.tuples(st.just("learn"), tokens, st.floats(0.0, 1e6)),
)


@given(st.lists(moves, max_size=80))
def test_the_sum_of_what_waits_is_that_of_its_sizes(history: list[tuple[str, int, float]]) -> None:
    sizes = Sizes(RANKS)
    waiting: list[tuple[Size, int]] = []
    for move, number, other in history:
        if move == "join":
            waiting.append((sizes.of(number), int(other)))
            sizes.join(*waiting[-1])
        elif move == "learn":
            sizes.learn(number, other)
        elif waiting:
            sizes.leave(*waiting.pop(number % len(waiting)))
    for rank in range(RANKS):
        here = [size.mean_s for size, at in waiting if at == rank]
        assert sizes.counted[rank] == len(here)
        assert sizes.waiting_s[rank] == pytest.approx(sum(here), rel=1e-6, abs=1e-3)


@given(st.integers(0, 10**9))
def test_prompts_of_one_size_differ_by_less_than_half(count: int) -> None:
    sizes = Sizes(RANKS)
    twice = sizes.of(2 * count + 1)
    assert sizes.of(count) is not twice
    assert sizes.of(count) is sizes.of(count)
