"""Who may use which slots when nobody leads: a partition that all replicas work out alike.

Every node's slots are dealt out one by one over the replicas that were last known, in an order of
their own for each node (rendezvous hashing, Thaler and Ravishankar 1998), so that the odd slots of
many nodes spread over all. The shares of one node add up to its slots, whoever reckons: no
over-commit, as long as all know the same replicas. A node with one slot belongs to one replica.
"""

from collections.abc import Iterable
from zlib import crc32


def share_of(me: str, members: Iterable[str], node: str, slots: int) -> int:
    """Return how many of a node's slots are mine.

    >>> [share_of(name, ("a", "b", "c"), "gpu1", 4) for name in ("a", "b", "c")]
    [2, 1, 1]
    """
    everyone = sorted({me, *members}, key=lambda name: (crc32(f"{node}/{name}".encode()), name))
    whole, odd = divmod(max(0, slots), len(everyone))
    return whole + (everyone.index(me) < odd)
