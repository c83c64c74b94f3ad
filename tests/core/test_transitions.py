"""The life of a ticket as a table: complete, without a way back from the end, and enforced."""

from __future__ import annotations

from typing import get_args

import pytest

from forebay.core.states import ENDED, TRANSITIONS, Cause, State, after
from forebay.errors import InvariantBroken

STATES: tuple[State, ...] = get_args(State)
CAUSES: tuple[Cause, ...] = get_args(Cause)


def test_what_has_ended_has_no_way_out() -> None:
    assert {state for state, _ in TRANSITIONS}.isdisjoint(ENDED)
    assert set(STATES) - {state for state, _ in TRANSITIONS} == ENDED


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
