"""Messages of another version: what is not known is left out; what is, is never guessed."""

from __future__ import annotations

import msgspec
import pytest

from forebay.coordination.protocol.decoding import COMPLAINTS_MAX, MessageReader
from forebay.coordination.protocol.messages import (
    Heartbeat,
    Orders,
    ProbeNode,
    ReplicaBatch,
    encode,
)
from forebay.core import Arrived, Route

NEW = {"type": "Danced", "with": ["somebody", {"x": 1}]}


def reader() -> tuple[MessageReader, list[str]]:
    said: list[str] = []
    return MessageReader(said.append), said


def newer(*before: object, items: tuple[object, ...]) -> bytes:
    """Return what a later version sends: new fields, new kinds, and more at the end."""
    plain = [msgspec.to_builtins(item) for item in items]
    return msgspec.msgpack.encode([*before, plain, "something else"])


def test_what_this_version_says_is_read_as_it_is() -> None:
    made, said = reader()
    batch = ReplicaBatch("a-1", 2, 3, (Arrived("x", "m"), Heartbeat(1.5)))
    orders = Orders(4, "a-1", 2, 3, (Route("x", "gpu"), ProbeNode("gpu")))
    assert made.batch(encode(batch)) == batch
    assert made.orders(encode(orders)) == orders
    assert said == []


def test_items_of_a_kind_that_is_not_known_are_left_out_and_told_once() -> None:
    made, said = reader()
    for _ in range(3):
        up = made.batch(newer("a-1", 2, 3, items=(Heartbeat(1.0), NEW, Arrived("x", "m"))))
        assert up == ReplicaBatch("a-1", 2, 3, (Heartbeat(1.0), Arrived("x", "m")))
        down = made.orders(newer(4, "a-1", 2, 3, items=(NEW, Route("x", "gpu"))))
        assert down == Orders(4, "a-1", 2, 3, (Route("x", "gpu"),))
    assert said == ["unknown kind of message: Danced"]


def test_fields_that_are_not_known_are_left_out() -> None:
    made, said = reader()
    item = {"type": "ProbeNode", "node": "gpu", "urgently": True}
    assert made.orders(newer(4, "a-1", 2, 3, items=(item,))) == Orders(
        4, "a-1", 2, 3, (ProbeNode("gpu"),)
    )
    assert said == []


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        newer("a-1", 2, 3, items=({"type": "Arrived", "id": 7},)),
        newer("a-1", 2, 3, items=(NEW, {"type": "Heartbeat", "stamp_s": "late"})),
        newer("a-1", 2, 3, items=({"no": "type"},)),
        msgspec.msgpack.encode(["a-1", "two", 3, []]),
    ],
)
def test_a_decision_that_cannot_be_read_is_not_left_out_but_lost(payload: bytes) -> None:
    made, said = reader()
    assert made.batch(payload) is None
    assert len(said) >= 1


def test_a_stream_of_nonsense_does_not_fill_the_log() -> None:
    made, said = reader()
    for number in range(10 * COMPLAINTS_MAX):
        made.batch(newer("a-1", 2, 3, items=({"type": f"Kind{number}"},)))
    assert len(said) == COMPLAINTS_MAX
