"""What is learned from a log: times of models, of nodes, and of loads."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from forebay.planning.fitting import ASSUMED, fit, fit_all, with_service_times
from forebay.planning.traffic import Traffic, TrafficRequest, read_traffic

from .making import line, refused, write

if TYPE_CHECKING:
    from pathlib import Path


def ran(prompt: int, output: int, *, stream: bool, outlier_s: float = 0.0) -> TrafficRequest:
    first_s = 0.1 + 0.001 * prompt + outlier_s
    run_s = first_s + 0.02 * output
    return TrafficRequest(
        0.0, "m", prompt_tokens=prompt, output_tokens=output, stream=stream, node="n1",
        first_byte_s=first_s if stream else run_s, run_s=run_s, is_whole=True,
    )  # fmt: skip


@pytest.mark.parametrize("stream", [True, False])
def test_times_are_found_again_although_some_requests_were_held_up(stream: bool) -> None:
    source = random.Random(1)
    requests = [
        ran(source.randint(1, 3000), source.randint(1, 300), stream=stream,
            outlier_s=source.choice((0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 30.0)))
        for _ in range(300)
    ]  # fmt: skip
    found = fit(requests)
    assert found.points == 300
    assert found.of(1000, 100) == pytest.approx(3.1, rel=0.2)
    assert found.of(100, 10) == pytest.approx(0.4, rel=0.5)


def test_a_few_requests_are_a_median_and_a_trace_is_assumed() -> None:
    requests = [ran(1, tokens, stream=True) for tokens in (1, 2, 200)]
    assert fit(requests).of(0, 0) == fit(requests).of(9, 9) == requests[1].run_s
    trace = [TrafficRequest(0.0, "model", prompt_tokens=100, output_tokens=10)]
    assert fit_all(trace).models == {"model": ASSUMED}


def test_what_ran_takes_its_own_time_and_what_was_refused_that_of_its_model(
    tmp_path: Path,
) -> None:
    lines = [line(at, run_s=2.0) for at in range(20)]
    lines += [refused(30, prompt_tokens=100), line(31, run_s=7.0)]
    traffic = read_traffic(write(tmp_path / "log", *lines))
    timed = with_service_times(traffic, fit_all(traffic.requests), 0).requests
    assert [one.service_s for one in timed[-2:]] == [pytest.approx(2.0), 7.0]
    assert timed[-2].output_tokens == 10


def test_a_refused_request_writes_no_more_than_its_caller_allowed(tmp_path: Path) -> None:
    lines = [line(at, run_s=0.1 + 0.1 * (at + 1), output_tokens=at + 1) for at in range(40)]
    traffic = read_traffic(write(tmp_path / "log", *lines, refused(50, output_limit=1)))
    timed = with_service_times(traffic, fit_all(traffic.requests), 0).requests
    assert timed[-1].service_s == pytest.approx(0.2, abs=0.01)


def test_a_slow_node_is_known_as_one(tmp_path: Path) -> None:
    lines = [line(at, run_s=1.0, node="fast") for at in range(60)]
    lines += [line(at + 0.5, run_s=3.0, node="slow") for at in range(30)]
    traffic = read_traffic(write(tmp_path / "log", *lines))
    fits = fit_all(traffic.requests)
    assert fits.slowness == {"fast": 1.0, "slow": pytest.approx(3.0)}
    timed = with_service_times(traffic, fits, 0).requests
    assert {round(one.service_s, 3) for one in timed} == {1.0}


def swapping(load_s: float) -> list[TrafficRequest]:
    """Return requests of one node that changes its model after every tenth."""
    return [
        TrafficRequest(
            float(60 * number), "ab"[number // 10 % 2], output_tokens=10, stream=True, node="n1",
            first_byte_s=first_s, run_s=first_s + 1.0, is_whole=True,
        )
        for number in range(100)
        for first_s in (0.2 + (0.0 if number % 10 else load_s),)
    ]  # fmt: skip


def test_the_time_to_load_a_model_is_seen_and_not_taken_for_service() -> None:
    requests = swapping(8.0)
    fits = fit_all(requests)
    assert fits.load_s == pytest.approx(8.0)
    assert fits.cold == dict.fromkeys(range(0, 100, 10), pytest.approx(8.0))
    timed = with_service_times(Traffic("access log", requests, []), fits, 0).requests
    assert timed[20].service_s == pytest.approx(1.2)


def test_what_comes_while_a_model_loads_waits_for_the_rest_of_the_load() -> None:
    requests = []
    for one in swapping(8.0):
        requests.append(one)
        if one.first_byte_s > 8.0:
            more = {"at_s": one.at_s + 6.0, "first_byte_s": 2.2, "run_s": 3.2}
            requests.append(replace(one, **more))
    fits = fit_all(requests)
    assert fits.cold[1] == pytest.approx(2.0)
    timed = with_service_times(Traffic("access log", requests, []), fits, 0).requests
    assert {round(one.service_s, 6) for one in timed} == {1.2}


def test_nodes_that_hold_all_their_models_load_nothing() -> None:
    assert fit_all(swapping(0.05)).load_s == 0.0


def turns(*models: str, load_s: float, at_once: int = 4, warm: int = 0) -> list[TrafficRequest]:
    """Return requests of one node that loads each of these models in turn.

    So many begin at once, before the load, and so many after it.
    """
    requests = []
    for number, model in enumerate(models):
        began_s = 100.0 * number
        starts_s = [began_s] * at_once + [began_s + 20.0 + 4.0 * place for place in range(warm)]
        requests += [
            TrafficRequest(
                start_s, model, output_tokens=10, stream=True, node="n1", is_whole=True,
                first_byte_s=first_s, run_s=first_s + 1.0,
            )
            for start_s in starts_s
            for first_s in (0.2 + (load_s if start_s == began_s else 0.0),)
        ]  # fmt: skip
    return requests


def services(requests: list[TrafficRequest], load_s: float = 0.0) -> set[float]:
    fits = fit_all(requests, load_s)
    timed = with_service_times(Traffic("access log", requests, []), fits, 0).requests
    return {round(one.service_s, 3) for one in timed}


def test_loads_are_seen_although_most_requests_waited_for_one() -> None:
    requests = turns(*"abab" * 5, load_s=8.0, warm=1)
    assert fit_all(requests).load_s == pytest.approx(8.0)
    assert services(requests) == {1.2}


def test_loads_of_a_model_that_always_waited_for_one_are_known_from_the_others() -> None:
    requests = turns(*"ab" * 5, load_s=8.0, warm=5)
    requests += [
        replace(one, at_s=one.at_s + 1000.0) for one in turns(*"cacb" * 10, load_s=8.0, warm=0)
    ]
    fits = fit_all(requests)
    assert fits.load_s == pytest.approx(8.0)
    assert fits.models["c"].first_s == pytest.approx(0.2)
    assert services(requests) == {1.2}


def test_a_model_that_is_slow_and_rare_loads_nothing() -> None:
    often = turns(*"a" * 20, load_s=0.0, warm=5)
    slow = [
        replace(one, model="b", at_s=one.at_s + 50.0, first_byte_s=9.0, run_s=10.0)
        for one in turns(*"b" * 20, load_s=0.0, at_once=1)
    ]
    assert fit_all(sorted(often + slow, key=lambda one: one.at_s)).load_s == 0.0


def test_models_that_run_at_the_same_time_are_not_loaded_in_turn() -> None:
    source = random.Random(1)
    requests = [
        TrafficRequest(
            float(at), source.choice("ab"), output_tokens=10, node="n1", is_whole=True,
            run_s=source.choice((0.5, 1.0, 30.0, 40.0, 50.0)),
        )
        for at in range(200)
    ]  # fmt: skip
    assert fit_all(requests).load_s == 0.0


def test_who_follows_a_cancelled_request_waits_for_the_rest_of_its_load() -> None:
    requests = turns(*"ab" * 10, load_s=8.0, at_once=2, warm=2)
    for place in range(20, len(requests), 4):
        left = {"is_whole": False, "run_s": 1.0, "first_byte_s": 0.0}
        requests[place] = replace(requests[place], **left)
        rest = {"at_s": requests[place].at_s + 1.0, "first_byte_s": 7.2, "run_s": 8.2}
        requests[place + 1] = replace(requests[place + 1], **rest)
    fits = fit_all(requests)
    assert fits.load_s == pytest.approx(8.0)
    assert fits.cold[21] == pytest.approx(7.0)
    assert services(requests) == {1.2}


def test_what_somebody_says_of_loads_is_no_part_of_the_service_either() -> None:
    requests = turns(*"ab" * 10, load_s=8.0)
    assert fit_all(requests).load_s == 0.0  # every request waited: the log does not show it
    assert services(requests) == {9.2}
    assert services(requests, load_s=8.0) == {1.2}
    seen = turns(*"ab" * 10, load_s=8.0, warm=2)
    assert services(seen, load_s=20.0) == {1.2}
