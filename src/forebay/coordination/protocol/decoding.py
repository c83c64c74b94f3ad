"""Decode messages, also those of another version: a fleet is upgraded one gateway at a time.

Unknown fields are ignored, as everywhere, and so are whole items of an unknown kind: the rest of
the message counts. An item of a known kind that cannot be read makes the whole message unreadable,
for dropping a decision would lose a slot or a ticket; the message counts as lost then, and the
sender announces everything anew.
"""

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import msgspec

from forebay.coordination.protocol.messages import (
    Down,
    Orders,
    ReplicaBatch,
    Up,
    decode_batch,
    decode_orders,
)

M = TypeVar("M", ReplicaBatch, Orders)
COMPLAINTS_MAX = 10
"""Log lines about this in one run: there would be one for every message."""

_UP = frozenset(kind.__name__ for kind in get_args(Up))
_DOWN = frozenset(kind.__name__ for kind in get_args(Down))


class MessageReader:
    """Decodes messages, and reports each thing that it does not understand once."""

    def __init__(self, complain: Callable[[str], None]) -> None:
        """`complain` is called with what is unknown or unreadable, once for each."""
        self._complain = complain
        self._complained: set[str] = set()

    def batch(self, payload: bytes) -> ReplicaBatch | None:
        """Return a replica's message; None when it is unreadable."""
        return self._read(payload, decode_batch, ReplicaBatch, _UP)

    def orders(self, payload: bytes) -> Orders | None:
        """Return a leader's message; None when it is unreadable."""
        return self._read(payload, decode_orders, Orders, _DOWN)

    def _read(
        self, payload: bytes, decode: Callable[[bytes], M], form: type[M], kinds: frozenset[str]
    ) -> M | None:
        try:
            return decode(payload)
        except msgspec.MsgspecError:
            pass  # seldom: the usual message costs nothing extra
        try:
            parts = msgspec.msgpack.decode(payload, type=list[Any])
            place = form.__struct_fields__.index("items")
            parts[place] = [item for item in parts[place] if self._knows(item["type"], kinds)]
            return msgspec.convert(parts, form)
        except (msgspec.MsgspecError, TypeError, LookupError) as error:
            self._report(str(error))
            return None

    def _knows(self, kind: Any, kinds: frozenset[str]) -> bool:
        if kind in kinds:
            return True
        self._report(f"unknown kind of message: {str(kind)[:50]}")
        return False

    def _report(self, what: str) -> None:
        if what not in self._complained and len(self._complained) < COMPLAINTS_MAX:
            self._complained.add(what)
            self._complain(what)
