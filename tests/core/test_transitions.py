"""The life of a ticket as a table: complete, without a way back from the end, and enforced."""

from __future__ import annotations

from typing import get_args

import pytest

from forebay.core.states import ENDED, TRANSITIONS, Cause, State, after
from forebay.errors import InvariantBroken

STATES: tuple[State, ...] = get_args(State)
CAUSES: tuple[Cause, ...] = get_args(Cause)


def reachable(start: State) -> set[State]:
    found = {start}
    while True:
        more = {to for (state, _), to in TRANSITIONS.items() if state in found} - found
        if not more:
            return found
        found |= more


def test_every_state_can_be_reached() -> None:
    assert reachable("new") == set(STATES)


def test_every_cause_is_used() -> None:
    assert {cause for _, cause in TRANSITIONS} == set(CAUSES)


def test_what_has_ended_has_no_way_out() -> None:
    assert {state for state, _ in TRANSITIONS}.isdisjoint(ENDED)
    assert set(STATES) - {state for state, _ in TRANSITIONS} == ENDED


@pytest.mark.parametrize("state", [state for state in STATES if state not in ENDED])
def test_everything_can_end(state: State) -> None:
    assert reachable(state) & ENDED


def test_nothing_becomes_new_again() -> None:
    assert "new" not in TRANSITIONS.values()


def test_a_lease_begins_with_route_and_ends_with_finish_return_or_cancel() -> None:
    into = {cause for (_, cause), to in TRANSITIONS.items() if to == "running"}
    out_of = {cause for state, cause in TRANSITIONS if state == "running"}
    assert into == {"route"}
    assert out_of >= {"finish", "return", "cancel"}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("cause", CAUSES)
def test_a_move_is_in_the_table_or_raises(state: State, cause: Cause) -> None:
    if (state, cause) in TRANSITIONS:
        assert after(state, cause) == TRANSITIONS[state, cause]
    else:
        with pytest.raises(InvariantBroken, match=f"{state} cannot {cause}"):
            after(state, cause)
