"""Every message between replicas: what it means, and what it costs.

All of them are msgpack, defaults left out. A replica's messages to the leader travel in a `Batch`,
the leader's to a replica in `Orders`; each is one entry of a stream in the store (see
`forebay.coordination.store.keys`) and holds whatever came up since the last one went out, so that a
round trip is shared by all that waits for it. Within one process they are handed over as they are.

**Order and loss.** Both kinds carry the epoch (whose leader it is about), the generation (which
announcement of the replica it follows) and a number that counts from 0 in each generation. What
belongs to another epoch or generation is refused; what was seen is ignored; after a gap the
replica announces everything anew, under the next generation. So a message may come twice, late or
never, and nothing is granted twice because of it.
"""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from forebay.core import (
    Abort,
    Arrived,
    Cancelled,
    Describe,
    Expire,
    Finished,
    Inspected,
    NodeChanged,
    NodeRemoved,
    NodeRested,
    Observed,
    Reject,
    Resumed,
    Returned,
    Revoked,
    Route,
    Snapshot,
    Totals,
    Wait,
)

ITEMS_MAX = 1000
"""Items in one batch: the announcement of a long line goes in several."""

# -- up: from a replica to the leader


class About(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Who a replica is; also kept in the store beside its membership."""

    member: str
    """Its name and a number of this run, `1a2b3c4d-9f31`: one that restarts is another member."""
    address: str = ""
    version: str = ""
    settings: str = ""
    given: dict[str, str] = {}
    """Of the settings that all must share those that are not the default: digits, by key."""

    @property
    def name(self) -> str:
        """The part that stays the same over restarts."""
        return self.member.partition("-")[0]


class Announced(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """That was everything I have: an announcement ends here."""

    about: About


class Endings(Struct, frozen=True, array_like=True, gc=False):
    """How one replica's requests have ended since it started, whoever led; each only grows."""

    served: int = 0
    failed: int = 0
    expired: int = 0


class Signed(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """I am alive, and my clock says this; three times a lease."""

    stamp_s: float
    """By the replica's own clock; `Pulse` sends it back."""
    endings: Endings = Endings()
    """What ended while nobody led, or alone, is in here and nowhere else."""


class GaveBack(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Slots of a loan that I will not use any more."""

    node: str
    slots: int


class Asked(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Which replica has this ticket? Answered by `Owner`."""

    id: str


class Told(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Something that every other replica should know; the leader passes it on."""

    topic: str
    payload: bytes


class Left(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """A replica has gone, and nothing of it runs: the last that it says, and all are told."""

    member: str


Said: TypeAlias = Announced | Signed | Asked | Told | Left
"""What is not about a ticket or a node."""

Passed: TypeAlias = (
    Arrived
    | Resumed
    | Finished
    | Returned
    | Cancelled
    | Revoked
    | Inspected
    | Observed
    | NodeChanged
    | NodeRested
    | NodeRemoved
)
"""Events that the leader's core must hear of."""

Up: TypeAlias = Said | GaveBack | Passed


class Batch(Struct, frozen=True, array_like=True, gc=False):
    """What one replica has to say to the leader."""

    member: str
    generation: int
    number: int
    """0 begins an announcement, and with it everything before is void; -1 is outside the count."""
    items: tuple[Up, ...]

    @property
    def is_last(self) -> bool:
        """Whether the replica ends with it, whatever was lost before."""
        return bool(self.items) and type(self.items[-1]) is Left


def in_batches(member: str, generation: int, number: int, items: Sequence[Up]) -> list[Batch]:
    """Return what a replica has to say, in pieces of bearable size, numbered from `number` on."""
    return [
        Batch(member, generation, number + place, tuple(items[start : start + ITEMS_MAX]))
        for place, start in enumerate(range(0, len(items), ITEMS_MAX))
    ]


# -- down: from the leader to a replica


class Lend(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Use so many more slots of a node without asking, until they are called back."""

    node: str
    slots: int


class Recall(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Give slots back until so many are left: idle ones now, the others as they come free."""

    node: str
    keep: int = 0


class Look(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Someone says this node is not what you think: ask it now."""

    node: str


class Resync(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """I do not know you, or missed something you said: announce everything."""


class Resigned(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """I lead no more: whoever is next may lead at once."""

    leaves: bool = False
    """I have nothing left, and nobody need wait for what I would announce."""


class Owner(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """The answer to `Asked`; no member when it has ended."""

    id: str
    member: str = ""


class Standing(Struct, frozen=True, gc=False, omit_defaults=True):
    """How one replica is, as the leader knows it."""

    about: About
    waiting: int = 0
    running: int = 0
    lent: int = 0
    heard_s: float = 0.0


class Pulse(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """I lead, and heard you last when your clock said this; three times a lease.

    A loan may be used for two thirds of a lease from that stamp on.
    """

    stamp_s: float = 0.0
    totals: Totals = Totals()
    """All that was counted so far: the next leader goes on from there."""
    endings: dict[str, Endings] = {}
    """How requests have ended, by the member that had them; "" is those longest gone."""
    replicas: tuple[Standing, ...] = ()


Down: TypeAlias = (
    Lend
    | Recall
    | Look
    | Resync
    | Resigned
    | Owner
    | Pulse
    | Told
    | Left
    | Route
    | Wait
    | Reject
    | Expire
    | Abort
    | Describe
    | Snapshot
)


class Orders(Struct, frozen=True, array_like=True, gc=False):
    """What the leader has to say to one replica."""

    epoch: int
    leader: str
    generation: int
    """Of the replica's announcement that the leader went by; 0 before there was one."""
    number: int
    """-1 is outside the count: a greeting, or the wish for an announcement."""
    items: tuple[Down, ...]

    @property
    def are_last(self) -> bool:
        """Whether the leader ends with them."""
        return bool(self.items) and type(self.items[-1]) is Resigned


encode = msgspec.msgpack.Encoder().encode
decode_batch = msgspec.msgpack.Decoder(Batch).decode
decode_orders = msgspec.msgpack.Decoder(Orders).decode
decode_about = msgspec.msgpack.Decoder(About).decode
