"""How a fleet is drawn, and what the banner says of it: in words, and only what lasts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from forebay.dashboard.fleet import LONG_SEEKING_S, REPLICAS_MAX, fleet_snapshot, fleet_troubles
from harness.shown_fleet import ME, ShownFleet, replica


def troubles(*others: Any, mode_s: float = 40.0, **changed: Any) -> dict[str, str]:
    """Return what is said of a fleet, by code."""
    drawn = fleet_snapshot(ShownFleet(*others, **changed).picture(), mode_s=mode_s)
    found = list(fleet_troubles(drawn))
    assert all(one.text.ja and one.advice.ja and one.advice.en for one in found)
    return {one.code: one.text.en for one in found}


def test_of_a_fleet_that_is_well_nothing_is_said() -> None:
    assert troubles(replica("2"), replica("3")) == {}


@pytest.mark.parametrize(
    ("mode", "code", "words"),
    [
        ("alone", "store_lost", "The shared store has been unreachable for 40 s: each gateway "
         "works alone, with its share of the slots."),
        ("cut_off", "cut_off", "This gateway has been cut off from the shared store for 40 s, "
         "but others may reach it: nothing new starts here."),
        ("seeking", "leaderless", "No gateway has led the fleet for 40 s: new requests wait."),
    ],
)  # fmt: skip
def test_a_fleet_without_a_leader_or_a_store_is_told_with_how_long(
    mode: str, code: str, words: str
) -> None:
    assert troubles(replica("2", state="lost", settings="other"), mode=mode) == {code: words}


def test_a_handover_is_not_a_trouble() -> None:
    assert troubles(mode="seeking", mode_s=LONG_SEEKING_S - 0.1) == {}


def test_lost_gateways_are_named_and_beyond_a_few_counted() -> None:
    one = troubles(replica("2", state="lost", heard_s=9.0))
    assert one == {"replica_lost": "1 of 2 gateways has sent no heartbeat for 9 s: 2."}
    many = troubles(*(replica(f"{n}", state="lost", heard_s=n) for n in range(2, 7)))
    assert many["replica_lost"].endswith("for 2 s: 2, 3, 4 and 2 more.")


def test_settings_are_held_against_this_gateways_own_and_else_the_leaders() -> None:
    assert list(troubles(replica("2", settings="other"))) == ["settings_differ"]
    assert troubles(replica("2", settings="other", state="lost")).keys() == {"replica_lost"}
    leader, stray = replica("2", state="leading", settings="new"), replica("3", settings="old")
    not_here = ShownFleet(replicas=(stray, leader)).picture()
    assert [one.same_settings for one in fleet_snapshot(not_here).replicas] == [True, False]
    unled = ShownFleet(replicas=(stray, replace(leader, state="following"))).picture()
    assert all(one.same_settings for one in fleet_snapshot(unled).replicas)


def test_several_versions_are_noted_while_they_last() -> None:
    said = troubles(replica("2", version="0.7.0"), replica("3", version="0.5.9", state="lost"))
    assert said["versions_differ"] == "The gateways of this fleet run 2 versions: 0.6.0, 0.7.0."


def test_a_very_large_fleet_shows_some_and_the_living_first() -> None:
    others = [replica(f"{n:08x}", state="lost" if n % 2 else "following") for n in range(200)]
    drawn = fleet_snapshot(ShownFleet(*others).picture())
    assert len(drawn.replicas) == REPLICAS_MAX
    assert all(one.state != "lost" for one in drawn.replicas)
    assert drawn.me == ME


@pytest.mark.parametrize("mode", ["seeking", "alone", "cut_off"])
def test_without_a_leader_nobody_is_shown_to_lead(mode: str) -> None:
    drawn = fleet_snapshot(ShownFleet(replica("2", state="lost"), mode=mode).picture())
    assert [one.state for one in drawn.replicas] == ["following", "lost"]
