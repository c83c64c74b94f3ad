"""What is known of each number of requests at once."""

from __future__ import annotations

import pytest

from forebay.nodes.known_rounds import UNCAPPED, KnownRounds
from forebay.nodes.slot_rounds import Costs, Round


def rounds(**stretch: float) -> KnownRounds:
    """Return what is known where requests take so many times as long with `n...` at once."""
    known = KnownRounds()
    for name, one in stretch.items():
        known.add(Round(int(name[1:]), 16, one, one, one), home=1)
    return known


@pytest.mark.parametrize(
    ("known", "worse"),
    [
        (rounds(n5=1.0, n8=2.0, n12=5.0), 8),
        (rounds(n5=1.0, n8=1.35), UNCAPPED),  # about the same throughput
        (rounds(n5=1.0, n6=1.5, n8=2.0), UNCAPPED),  # the trial was better than before
        (rounds(n5=1.0, n6=1.0, n8=2.0), 8),
        (rounds(n5=1.0, n7=2.5), UNCAPPED),  # none gets so much slower by one more
    ],
)
def test_what_did_clearly_worse_than_a_trial_counts_unless_the_engine_has_changed(
    known: KnownRounds, worse: int
) -> None:
    assert known.worse_from(Round(6, 16, 1.0, 1.0, 1.0), Costs()) == worse


def test_what_follows_from_a_loss_of_room_gives_way_to_what_is_measured() -> None:
    known = KnownRounds({16: Round(16, 64, 4.0, 4.0, 4.0)}).scaled(0.5)
    assert known[8].rest == 4.0
    known.add(Round(8, 16, 1.0, 1.0, 1.0), home=8)
    assert known[8].rest == pytest.approx(4.0**0.2)  # a guess counts for 4 samples of 20
