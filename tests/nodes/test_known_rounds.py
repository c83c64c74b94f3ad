"""What is known of each number of requests at once."""

from __future__ import annotations

import pytest

from forebay.nodes.known_rounds import KnownRounds
from forebay.nodes.slot_rounds import Round


def test_what_follows_from_a_loss_of_room_gives_way_to_what_is_measured() -> None:
    known = KnownRounds({16: Round(16, 64, 4.0, 4.0, 4.0)}).scaled(0.5)
    assert known[8].rest == 4.0
    known.add(Round(8, 16, 1.0, 1.0, 1.0), home=8)
    assert known[8].rest == pytest.approx(4.0**0.2)  # a guess counts for 4 samples of 20
