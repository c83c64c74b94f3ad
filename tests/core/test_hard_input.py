"""Input that nobody means and bounds that nobody sees until they break."""

import gc
import math

import pytest

from forebay.core import (
    Action,
    Arrived,
    Cancelled,
    Expire,
    Finished,
    NodeChanged,
    Options,
    Reject,
    Resumed,
    Route,
    Scheduler,
    Ticked,
    Wait,
)  # fmt: skip
from forebay.core.records import Entry
from forebay.errors import InvariantBroken, NotAllowed
from harness.function_calls import functions_called

GPU = NodeChanged("gpu", slots=1, models=("m",))
TWO_MODELS = NodeChanged("gpu", slots=2, models=("a", "b"), loaded=("a",), load_s=1.0)


def started(options: Options | None = None, node: NodeChanged = GPU) -> Scheduler:
    scheduler = Scheduler(options)
    scheduler.handle(node, 0.0)
    return scheduler


@pytest.mark.parametrize("weight", [0.0, -1.0, 1e-320, float("inf"), float("nan")])
def test_a_weight_that_means_nothing_is_refused_loudly(weight: float) -> None:
    with pytest.raises(InvariantBroken, match="weight"):
        started().handle(Arrived("a", "m", weight=weight), 0.0)


def test_a_limit_that_is_not_a_number_cannot_stop_the_clock() -> None:
    scheduler = started()
    scheduler.handle(Arrived("runs", "m"), 0.0)
    scheduler.handle(Arrived("waits", "m"), 0.0)
    with pytest.raises(InvariantBroken, match="max_wait_s"):
        scheduler.handle(Arrived("odd", "m", max_wait_s=float("nan")), 0.0)
    (expired,) = scheduler.handle(Ticked(), 100.0)
    assert isinstance(expired, Expire)
    assert expired.id == "waits"


@pytest.mark.parametrize("name", ["burst", "input_weight", "max_size"])
@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1])
def test_options_that_do_not_stay_finite_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(NotAllowed, match=name):
        Scheduler(Options(**{name: value}))  # type: ignore[arg-type]  # wrong on purpose


def test_an_absurd_count_of_tokens_neither_wedges_a_ticket_nor_the_line() -> None:
    scheduler = started(Options(fairness="tokens"))
    scheduler.handle(Arrived("a", "m", prompt_tokens=10**400), 0.0)
    scheduler.handle(Arrived("b", "m"), 0.0)
    (route,) = scheduler.handle(Finished("a", prompt_tokens=10**400, output_tokens=10**400), 1.0)
    assert isinstance(route, Route)
    assert route.id == "b"
    assert scheduler.handle(Finished("b"), 2.0) == []


@pytest.mark.parametrize("tokens", [-1, 10**400], ids=["unknown", "huge"])
@pytest.mark.parametrize("first_s", [None, -math.inf, math.nan])
@pytest.mark.parametrize("ran_s", [-1e308, -1.0, 0.0, 1.0, math.inf, math.nan])
def test_absurd_measurements_end_no_search_for_slots_with_an_error(
    first_s: float | None, ran_s: float, tokens: int
) -> None:
    scheduler = started(node=NodeChanged("gpu", 2, ("m",), slots_kind="found"))
    for number in range(60):
        scheduler.handle(Arrived(f"a{number}", "m", prompt_tokens=max(0, tokens)), 0.0)
        told = Finished(f"a{number}", True, tokens, tokens, first_byte_s=first_s, ran_s=ran_s)
        scheduler.handle(told, number + 1.0)
    assert isinstance(scheduler.handle(Arrived("b", "m"), 61.0)[0], Route)


def test_who_comes_and_goes_behind_a_running_one_leaves_nothing() -> None:
    scheduler = started()
    scheduler.handle(Arrived("runs", "m"), 0.0)
    for number in range(2_000):
        scheduler.handle(Arrived(f"passer-by {number}", "m"), 0.0)
        scheduler.handle(Cancelled(f"passer-by {number}"), 0.0)
    entries = [thing for thing in gc.get_objects() if isinstance(thing, Entry)]
    # By name: other tests of this process may have left entries that nobody has collected yet.
    assert sum(entry.id.startswith("passer-by") for entry in entries) < 500


def test_a_drain_for_a_job_refuses_no_request_whose_model_is_still_there() -> None:
    scheduler = started(Options(max_size=0), TWO_MODELS)
    scheduler.handle(Arrived("runs", "a"), 0.0)
    scheduler.handle(Arrived("job", "b", job=True), 10.0)
    (decision,) = scheduler.handle(Arrived("chat", "a"), 10.0)
    assert isinstance(decision, Route)


def test_a_drain_for_a_lower_class_refuses_no_higher_one() -> None:
    scheduler = started(Options(max_size=1), TWO_MODELS)
    scheduler.handle(Arrived("runs", "a"), 0.0)
    (cold,) = scheduler.handle(Arrived("cold", "b"), 10.0)
    assert isinstance(cold, Wait)
    (decision,) = scheduler.handle(Arrived("urgent", "a", priority="high"), 10.0)
    assert isinstance(decision, Route)
    (same_class,) = scheduler.handle(Arrived("same", "a"), 10.0)
    assert isinstance(same_class, Reject)


def test_the_drain_goes_on_after_a_higher_class_has_passed() -> None:
    three_slots = NodeChanged("gpu", slots=3, models=("a", "b"), loaded=("a",), load_s=1.0)
    scheduler = started(None, three_slots)
    scheduler.handle(Arrived("runs", "a"), 0.0)
    scheduler.handle(Arrived("cold", "b"), 10.0)
    scheduler.handle(Arrived("urgent", "a", priority="high"), 10.0)
    (behind,) = scheduler.handle(Arrived("behind", "a"), 10.0)
    assert isinstance(behind, Wait)
    scheduler.handle(Cancelled("behind"), 10.0)
    assert scheduler.handle(Finished("runs"), 11.0) == []
    (route,) = scheduler.handle(Finished("urgent"), 12.0)
    assert isinstance(route, Route)
    assert route.id == "cold"


def test_debts_are_not_forgiven_to_who_sends_one_at_a_time() -> None:
    """Estimates are far too low for `greedy`, whose true-up must count though it waits anew."""
    scheduler = started(Options(fairness="tokens", max_size=1000, wait_s_max=1e9))
    real = {"greedy": 8000, "modest": 100}
    served = {"greedy": 0, "modest": 0}
    names = iter(range(1_000_000))

    def arrive(user: str) -> None:
        scheduler.handle(Arrived(f"{user}-{next(names)}", "m", user=user), 0.0)

    scheduler.handle(Arrived("modest-first", "m", user="modest"), 0.0)
    for _ in range(20):
        arrive("modest")
    running = "modest-first"
    for now in range(4000):
        user = running.split("-")[0]
        served[user] += real[user]
        done = Finished(running, prompt_tokens=0, output_tokens=real[user])
        (route,) = scheduler.handle(done, float(now))
        assert isinstance(route, Route)
        running = route.id
        arrive(user)
        if now == 150:  # by now a typical answer here has 100 tokens
            served["modest"] = 0
            arrive("greedy")
    assert served["greedy"] == pytest.approx(served["modest"], abs=3 * 8000)


def test_a_clock_that_runs_back_does_not_keep_what_is_due() -> None:
    scheduler = started()
    scheduler.handle(Arrived("z", "m"), 0.0)
    scheduler.handle(Ticked(), 10.0)
    (expired,) = scheduler.handle(Resumed(Arrived("a", "m"), waited_s=60.0), 5.0)
    assert isinstance(expired, Expire)
    assert expired.id == "a"


def test_late_ticks_do_not_delay_the_next_promotion() -> None:
    scheduler = started(Options(aging_s=1.0))
    scheduler.handle(Arrived("z", "m"), 0.0)
    scheduler.handle(Arrived("old", "m", priority="low"), 0.0)
    scheduler.handle(Ticked(), 1.9)
    assert scheduler.next_deadline_s() == 2.0


def calls_of_a_refusal(users: int) -> int:
    scheduler = started(Options(max_size=users))
    scheduler.handle(Arrived("z", "m"), 0.0)
    for number in range(users):
        scheduler.handle(Arrived(f"r{number}", "m", user=f"u{number}"), 0.0)
    scheduler.handle(Finished("z"), 5.0)  # something has been measured
    scheduler.handle(Arrived("last", "m", user="last"), 5.0)
    actions: list[Action] = []
    late = Arrived("no", "m", user="new", max_wait_s=1.0)
    calls = functions_called(lambda: actions.extend(scheduler.handle(late, 5.0)))
    (refused,) = actions
    assert isinstance(refused, Reject)
    assert refused.code == "queue_full"
    return len(calls)


def test_a_refusal_for_want_of_room_looks_at_nobody_even_with_a_deadline() -> None:
    assert calls_of_a_refusal(10) == calls_of_a_refusal(500)
