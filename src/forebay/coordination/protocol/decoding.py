"""Decode messages, also those of another version: a fleet is upgraded one gateway at a time.

Unknown fields are ignored, as everywhere, and so are whole items of an unknown kind: the rest of
the message counts. An item of a known kind that cannot be read makes the whole message unreadable,
for dropping a decision would lose a slot or a ticket; the message counts as lost then, and the
sender announces everything anew.
"""

from collections.abc import Callable
from typing import TypeVar, get_args

import msgspec

from forebay.coordination.protocol.messages import (
    Down,
    Orders,
    ReplicaBatch,
    Up,
    decode_batch,
    decode_orders,
)

M = TypeVar("M")
COMPLAINTS_MAX = 10
"""Log lines about this in one run: there would be one for every message."""


class _Kind(msgspec.Struct):
    """The kind of an item."""

    type: str


class _RawBatch(msgspec.Struct, array_like=True):
    """A `ReplicaBatch`, with items of any kind."""

    member: str
    generation: int
    number: int
    items: tuple[msgspec.Raw, ...]


class _RawOrders(msgspec.Struct, array_like=True):
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
_decode_raw_batch = msgspec.msgpack.Decoder(_RawBatch).decode
_decode_raw_orders = msgspec.msgpack.Decoder(_RawOrders).decode
_decode_kind = msgspec.msgpack.Decoder(_Kind).decode


class MessageReader:
    """Decodes messages, and reports each thing that it does not understand once."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        """`complain` is called with what is unknown or unreadable, once for each."""
        self._complain = complain
        self._complained: set[str] = set()

    def batch(self, payload: bytes) -> ReplicaBatch | None:
        """Return a replica's message; None when it is unreadable."""
        return self._read(payload, decode_batch, self._known_batch)

    def orders(self, payload: bytes) -> Orders | None:
        """Return a leader's message; None when it is unreadable."""
        return self._read(payload, decode_orders, self._known_orders)

    def _read(
        self, payload: bytes, whole: Callable[[bytes], M], known: Callable[[bytes], M]
    ) -> M | None:
        try:
            return whole(payload)
        except msgspec.MsgspecError:
            pass  # seldom: the usual message costs nothing extra
        try:
            return known(payload)
        except msgspec.MsgspecError as error:
            self._report(str(error))
            return None

    def _known_batch(self, payload: bytes) -> ReplicaBatch:
        said = _decode_raw_batch(payload)
        items = [_decode_up(item) for item in self._known(said.items, _UP)]
        return ReplicaBatch(said.member, said.generation, said.number, tuple(items))

    def _known_orders(self, payload: bytes) -> Orders:
        said = _decode_raw_orders(payload)
        items = [_decode_down(item) for item in self._known(said.items, _DOWN)]
        return Orders(said.epoch, said.leader, said.generation, said.number, tuple(items))

    def _known(self, items: tuple[msgspec.Raw, ...], kinds: frozenset[str]) -> list[msgspec.Raw]:
        kept = []
        for item in items:
            kind = _decode_kind(item).type
            if kind in kinds:
                kept.append(item)
            else:
                self._report(f"unknown kind of message: {kind[:50]}")
        return kept

    def _report(self, what: str) -> None:
        if what not in self._complained and len(self._complained) < COMPLAINTS_MAX:
            self._complained.add(what)
            self._complain(what)
