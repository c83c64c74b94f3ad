"""Every message between replicas: what it means, and what it costs.

All of them are msgpack, defaults left out. A replica's messages to the leader travel in a
`ReplicaBatch`, the leader's to a replica in `Orders`; each is one entry of a stream in the store
(see `forebay.coordination.store.keys`) and holds whatever came up since the last one was sent, so
that a round trip is shared by all that waits for it. Within one process items are handed over as
they are.

**Order and loss.** Both kinds carry the epoch of the leader, the generation (which announcement of
the replica they follow) and a number that counts from 0 in each generation. What belongs to another
epoch or generation is refused; what was seen is ignored; after a gap the replica announces
everything anew, under the next generation. So a message may come twice, late or never, and nothing
is granted twice because of it.
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
    KeysUsed,
    NodeChanged,
    NodeRemoved,
    NodeRested,
    Observed,
    Reject,
    Resumed,
    Returned,
    Revoked,
    Route,
    SlotsChanged,
    Snapshot,
    Totals,
    Wait,
)

ITEMS_MAX = 1000
"""Items in one batch: the announcement of a long queue takes several."""

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
    """The end of an announcement: everything that this replica has was sent before."""

    about: About


class Endings(Struct, frozen=True, array_like=True, gc=False):
    """How one replica's requests have ended since it started, under any leader; each only grows."""

    served: int = 0
    failed: int = 0
    expired: int = 0


class Heartbeat(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """This replica is alive; sent three times a lease."""

    stamp_s: float
    """The replica's own clock; `HeartbeatReply` echoes it."""
    endings: Endings = Endings()
    """The only report of what ended while there was no leader."""


class GaveBack(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Slots of a loan that this replica will not use any more."""

    node: str
    slots: int


class RanOnLoan(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Requests of one kind that began and ended on lent slots since the last message."""

    arrival: Arrived
    """Of the last of them."""
    node: str
    event: Finished
    """How they ended: how many, how many at once, with the mean of their tokens and times."""


class OwnerAsked(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Which replica has this ticket? Answered by `Owner`."""

    id: str


class Broadcast(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Something for every other replica; the leader passes it on."""

    topic: str
    payload: bytes


class MemberLeft(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """A replica has left and nothing of it runs: its last message, passed on to all."""

    member: str


Said: TypeAlias = Announced | Heartbeat | OwnerAsked | Broadcast | MemberLeft
"""Messages that are not about a ticket or a node."""

Passed: TypeAlias = (
    Arrived
    | Resumed
    | Finished
    | Returned
    | Cancelled
    | Revoked
    | Inspected
    | Observed
    | KeysUsed
    | NodeChanged
    | NodeRested
    | NodeRemoved
)
"""Events that the leader's core must hear of."""

Up: TypeAlias = Said | GaveBack | RanOnLoan | Passed


class ReplicaBatch(Struct, frozen=True, array_like=True, gc=False):
    """Messages of one replica to the leader."""

    member: str
    generation: int
    number: int
    """0 begins an announcement, which voids everything before; -1 is outside the numbering."""
    items: tuple[Up, ...]

    @property
    def is_last(self) -> bool:
        """Whether the replica leaves with it, whatever was lost before."""
        return bool(self.items) and type(self.items[-1]) is MemberLeft


def in_batches(
    member: str, generation: int, number: int, items: Sequence[Up]
) -> list[ReplicaBatch]:
    """Split messages into batches of at most `ITEMS_MAX`, numbered from `number` on."""
    return [
        ReplicaBatch(member, generation, number + place, tuple(items[start : start + ITEMS_MAX]))
        for place, start in enumerate(range(0, len(items), ITEMS_MAX))
    ]


# -- down: from the leader to a replica


class Lend(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Use this many more slots of a node without asking, until they are recalled."""

    node: str
    slots: int


class Recall(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Return slots until `keep` are left: idle ones now, the others when they are free."""

    node: str
    keep: int = 0


class ProbeNode(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Probe a node now: another replica reports that it has failed."""

    node: str


class Resync(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Announce everything: the replica is not known, or a batch of it is missing."""


class Resigned(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """The leader gives up leadership: another replica may take over at once."""

    leaves: bool = False
    """It has no tickets left: nobody need wait for its announcement."""


class Owner(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """The answer to `OwnerAsked`; no member when the ticket has ended."""

    id: str
    member: str = ""


class MemberStatus(Struct, frozen=True, gc=False, omit_defaults=True):
    """The state of one replica, as the leader knows it."""

    about: About
    waiting: int = 0
    running: int = 0
    lent: int = 0
    heard_s: float = 0.0


class HeartbeatReply(Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """The answer to a heartbeat, with its stamp.

    A loan may be used for two thirds of a lease from that stamp on.
    """

    stamp_s: float = 0.0
    totals: Totals = Totals()
    """All that was counted so far: the next leader continues from there."""
    endings: dict[str, Endings] = {}
    """How requests have ended, by the member that had them; "" is former members together."""
    replicas: tuple[MemberStatus, ...] = ()


Down: TypeAlias = (
    Lend
    | Recall
    | ProbeNode
    | Resync
    | Resigned
    | Owner
    | HeartbeatReply
    | Broadcast
    | MemberLeft
    | Route
    | Wait
    | Reject
    | Expire
    | Abort
    | Describe
    | SlotsChanged
    | Snapshot
)


class Orders(Struct, frozen=True, array_like=True, gc=False):
    """Messages of the leader to one replica."""

    epoch: int
    leader: str
    generation: int
    """Of the announcement that the leader goes by; 0 before there was one."""
    number: int
    """-1 is outside the numbering: a request for an announcement."""
    items: tuple[Down, ...]

    @property
    def are_last(self) -> bool:
        return bool(self.items) and type(self.items[-1]) is Resigned


encode = msgspec.msgpack.Encoder().encode
decode_batch = msgspec.msgpack.Decoder(ReplicaBatch).decode
decode_orders = msgspec.msgpack.Decoder(Orders).decode
decode_about = msgspec.msgpack.Decoder(About).decode
