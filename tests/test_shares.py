"""No key takes all of what keys share, whatever is shared."""

from __future__ import annotations

import pytest

from forebay.shares import SHARED_BOUNDS, Places, SharedBound

SET = 1000  # places of those that are a setting


def fill(places: Places, owner: str, owners: int) -> int:
    """Take all that an owner gets."""
    while not places.refusal(owner, owners):
        places.take(owner)
    return places.held[owner]


@pytest.mark.parametrize("bound", SHARED_BOUNDS, ids=lambda bound: bound.what)
def test_beside_a_greedy_key_others_find_room_and_a_key_alone_takes_all(bound: SharedBound) -> None:
    most = bound.places or SET
    places = Places(bound, most)
    assert fill(places, "greedy", 2) == -(-most * 4 // 5)
    assert places.refusal("greedy", 2).startswith(f"this key holds {places.held['greedy']} of ")
    for other in ("second", "third", "fourth"):
        assert places.refusal(other, 4) == ""
        places.take(other)
    assert fill(places, "greedy", 1) == most - 3  # the others' keys are gone
    assert places.refusal("greedy", 1) == f"there are {most} {bound.what} already"
    assert places.refusal("fifth", 2).endswith("and none is free")
    places.give_back("greedy")
    assert fill(places, "fifth", 2) == 1
    assert fill(Places(bound, SET), "", 0) == SET  # without keys


def test_of_a_thousand_places_five_greedy_keys_in_a_row_find_some() -> None:
    places = Places(SHARED_BOUNDS[0], 1000)
    assert [fill(places, name, 6) for name in "abcdef"] == [800, 160, 32, 7, 1, 0]


def test_a_place_that_is_given_back_leaves_no_holder() -> None:
    places = Places(SHARED_BOUNDS[0], 2)
    with places.held_by("a"):
        assert places.held == {"a": 1}
    assert places.held == {}
