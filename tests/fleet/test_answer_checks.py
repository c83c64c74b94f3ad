"""The judge of answers sees what is lost, doubled or mixed up."""

from __future__ import annotations

from typing import Any

from harness.fleet.answer_checks import (
    answered_twice,
    errors_outside,
    mixed_up,
    odd_errors,
    silent_gateways,
    without_answer,
)
from harness.fleet.journal import Asked, Journal, Missed, Window


def asked(**more: Any) -> Asked:
    given: dict[str, Any] = {"via": 0, "sent_s": 1.0, "ended_s": 2.0, "status": 200, "answers": 1}
    return Asked("r1", "ann", "normal", **{**given, **more})


def seen(*every: Asked) -> Journal:
    return Journal([], list(every), {}, 100.0)


def test_a_good_answer_is_in_order() -> None:
    journal = seen(asked())
    assert answered_twice(journal) == mixed_up(journal) == without_answer(journal, {}) == []
    assert errors_outside(journal, []) == odd_errors(journal) == []


def test_two_answers_on_one_connection_are_found() -> None:
    twice = asked(answers=2)
    assert answered_twice(seen(asked(), twice)) == [twice]


def test_the_answer_to_another_request_is_found() -> None:
    foreign = asked(foreign=True)
    assert mixed_up(seen(asked(), foreign)) == [foreign]


def test_silence_and_a_connection_that_breaks_are_found() -> None:
    silent, broken = asked(status=0, code="silence"), asked(status=0, code="broken")
    assert without_answer(seen(silent, broken), {}) == [silent, broken]


def test_a_killed_gateway_breaks_the_connections_it_had_and_no_others() -> None:
    broken = asked(status=0, code="broken")
    assert without_answer(seen(broken), {0: [(1.5, 1.6)]}) == []
    assert without_answer(seen(broken), {0: [(2.5, 2.6)], 1: [(1.5, 1.6)]}) == [broken]


def test_a_killed_gateway_is_no_excuse_for_silence() -> None:
    silent = asked(status=0, code="silence")
    assert without_answer(seen(silent), {0: [(1.5, 1.6)]}) == [silent]


def test_nobody_owes_an_answer_to_who_was_refused_at_the_door_or_left() -> None:
    assert (
        without_answer(seen(asked(status=0, code="refused"), asked(status=0, left=True)), {}) == []
    )


def test_an_error_is_excused_only_by_a_window_that_it_touches() -> None:
    error = asked(status=503)
    assert errors_outside(seen(error), [Window(1.9, 5)]) == []
    assert errors_outside(seen(error), [Window(2.1, 5)]) == [error]
    assert errors_outside(seen(error), []) == [error]


def test_an_error_that_does_not_say_later_is_wrong_at_any_time() -> None:
    failed = asked(status=502)
    assert odd_errors(seen(asked(status=503), failed, asked(status=504))) == [failed]


def test_a_gateway_that_says_nothing_is_excused_only_by_being_away_itself() -> None:
    missed = Missed(1, 2.0, 4.0)
    journal = Journal([], [], {}, 100.0, [missed])
    assert silent_gateways(journal, [(1, 3.0, 3.5)]) == []
    assert silent_gateways(journal, [(1, 0.0, 2.0)]) == []  # it began while it was away
    assert silent_gateways(journal, [(2, 0.0, 9.0), (1, 5.0, 9.0)]) == [missed]
    assert silent_gateways(journal, []) == [missed]
