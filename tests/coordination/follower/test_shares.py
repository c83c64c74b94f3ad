"""The shares of replicas that nobody leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from forebay.coordination.follower.share import share_of

if TYPE_CHECKING:
    from random import Random

NAMES = st.lists(st.text("abcdef0123456789", min_size=1), min_size=1, max_size=8, unique=True)


@given(NAMES, st.integers(0, 100), st.text(max_size=8))
def test_the_shares_of_a_node_add_up_to_its_slots(names: list[str], slots: int, node: str) -> None:
    shares = [share_of(name, names, node, slots) for name in names]
    assert sum(shares) == slots
    assert max(shares) - min(shares) <= 1


@given(NAMES, st.integers(1, 100), st.randoms(use_true_random=False))
def test_everyone_reckons_alike_in_whatever_order_it_knows_the_others(
    names: list[str], slots: int, random: Random
) -> None:
    shuffled = names.copy()
    random.shuffle(shuffled)
    without_me = [name for name in shuffled if name != names[0]]
    assert share_of(names[0], without_me, "gpu", slots) == share_of(names[0], names, "gpu", slots)


def test_odd_slots_of_many_nodes_spread_over_all() -> None:
    names = [f"{n:08x}-1" for n in range(4)]
    owners = [
        name for n in range(200) for name in names if share_of(name, names, f"gpu{n}", 1) == 1
    ]
    assert len(owners) == 200
    assert all(30 <= owners.count(name) <= 70 for name in names)


def test_a_node_without_slots_is_nobodys() -> None:
    assert share_of("a", ["b"], "gpu", 0) == share_of("a", ["b"], "gpu", -1) == 0
