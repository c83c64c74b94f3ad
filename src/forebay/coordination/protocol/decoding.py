"""Reading messages, also those of another version: a fleet is renewed one gateway at a time.

Fields that this version does not know are left out, as everywhere, and so are whole items of a kind
that it does not know: the rest of the message stands. An item of a known kind that cannot be read
makes the whole message unreadable, for to leave out a decision would lose a slot or a ticket; then
it counts as lost, and the sender announces everything anew.
"""

from collections.abc import Callable
from typing import TypeVar, get_args

import msgspec

from forebay.coordination.protocol.messages import (
    Batch,
    Down,
    Orders,
    Up,
    decode_batch,
    decode_orders,
)

M = TypeVar("M")
COMPLAINTS_MAX = 10
"""Log lines about this in one run: there would be one for every message."""


class _Kind(msgspec.Struct):
    """No more of an item than its kind."""

    type: str


class _Letter(msgspec.Struct, array_like=True):
    """A `Batch`, with items of any kind."""

    member: str
    generation: int
    number: int
    items: tuple[msgspec.Raw, ...]


class _Decree(msgspec.Struct, array_like=True):
    """`Orders`, with items of any kind."""

    epoch: int
    leader: str
    generation: int
    number: int
    items: tuple[msgspec.Raw, ...]


_UP = frozenset(kind.__name__ for kind in get_args(Up))
_DOWN = frozenset(kind.__name__ for kind in get_args(Down))
_decode_up: Callable[[msgspec.Raw], Up] = msgspec.msgpack.Decoder(Up).decode
_decode_down: Callable[[msgspec.Raw], Down] = msgspec.msgpack.Decoder(Down).decode
_decode_letter = msgspec.msgpack.Decoder(_Letter).decode
_decode_decree = msgspec.msgpack.Decoder(_Decree).decode
_decode_kind = msgspec.msgpack.Decoder(_Kind).decode


class Reader:
    """Reads what others have sent, and remembers what it could not make sense of."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        """`complain` hears of each kind that is not known, once; and of what cannot be read."""
        self._complain = complain
        self._complained: set[str] = set()

    def batch(self, payload: bytes) -> Batch | None:
        """Return what a replica says; None when it cannot be read."""
        return self._read(payload, decode_batch, self._known_batch)

    def orders(self, payload: bytes) -> Orders | None:
        """Return what a leader says; None when it cannot be read."""
        return self._read(payload, decode_orders, self._known_orders)

    def _read(
        self, payload: bytes, whole: Callable[[bytes], M], known: Callable[[bytes], M]
    ) -> M | None:
        try:
            return whole(payload)
        except msgspec.MsgspecError:
            pass  # seldom: what may be left out costs the usual message nothing
        try:
            return known(payload)
        except msgspec.MsgspecError as error:
            self._say(str(error))
            return None

    def _known_batch(self, payload: bytes) -> Batch:
        said = _decode_letter(payload)
        items = [_decode_up(item) for item in self._known(said.items, _UP)]
        return Batch(said.member, said.generation, said.number, tuple(items))

    def _known_orders(self, payload: bytes) -> Orders:
        said = _decode_decree(payload)
        items = [_decode_down(item) for item in self._known(said.items, _DOWN)]
        return Orders(said.epoch, said.leader, said.generation, said.number, tuple(items))

    def _known(self, items: tuple[msgspec.Raw, ...], kinds: frozenset[str]) -> list[msgspec.Raw]:
        kept = []
        for item in items:
            kind = _decode_kind(item).type
            if kind in kinds:
                kept.append(item)
            else:
                self._say(f"a message of a kind that this version does not know: {kind[:50]}")
        return kept

    def _say(self, what: str) -> None:
        if what not in self._complained and len(self._complained) < COMPLAINTS_MAX:
            self._complained.add(what)
            self._complain(what)
