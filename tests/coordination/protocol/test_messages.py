"""Every message survives the way through the store, with every field."""

from __future__ import annotations

import typing
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest

from forebay.coordination.protocol.messages import (
    ITEMS_MAX,
    About,
    Announced,
    Down,
    Orders,
    ReplicaBatch,
    Resync,
    Up,
    decode_about,
    decode_batch,
    decode_orders,
    encode,
    in_batches,
)
from forebay.core import Arrived, Cancelled


def filled(kind: type[msgspec.Struct]) -> msgspec.Struct:
    """Return a message in which every field has a value that is not its default."""
    hints = get_type_hints(kind)
    fields = msgspec.structs.fields(kind)
    return kind(**{field.name: value_of(hints[field.name], field.default) for field in fields})


def value_of(hint: Any, default: object) -> object:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return next(choice for choice in arguments if choice != default)
    if origin is tuple:
        return tuple(value_of(one, None) for one in arguments if one is not Ellipsis)
    if origin is dict:
        return {value_of(arguments[0], None): value_of(arguments[1], None)}
    if origin in (UnionType, typing.Union):
        return value_of(next(one for one in arguments if one is not type(None)), default)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return filled(hint)
    plain: dict[Any, object] = {
        str: "text \N{SNOWMAN}", int: 17, float: 2.5, bool: not default, bytes: b"\x00\xff",
    }  # fmt: skip
    return plain[hint]


@pytest.mark.parametrize("kind", get_args(Up), ids=lambda kind: kind.__name__)
def test_what_goes_up_arrives_as_it_was(kind: type[msgspec.Struct]) -> None:
    batch = ReplicaBatch("1a2b3c4d-9f31", 7, 3, (filled(kind),))  # type: ignore[arg-type]
    assert decode_batch(encode(batch)) == batch


@pytest.mark.parametrize("kind", get_args(Down), ids=lambda kind: kind.__name__)
def test_what_goes_down_arrives_as_it_was(kind: type[msgspec.Struct]) -> None:
    orders = Orders(5, "1a2b3c4d-9f31", 7, -1, (filled(kind),))  # type: ignore[arg-type]
    assert decode_orders(encode(orders)) == orders


def test_filling_leaves_no_field_at_its_default() -> None:
    for kind in {*get_args(Up), *get_args(Down)}:
        message = filled(kind)
        for field in msgspec.structs.fields(kind):
            assert getattr(message, field.name) != field.default, (kind, field.name)


def test_who_a_replica_is_arrives_as_it_was_and_its_name_outlives_a_restart() -> None:
    about = About("1a2b3c4d-9f31", "http://gpu:1", "0.1", "abc")
    assert decode_about(encode(about)) == about
    assert about.name == About("1a2b3c4d-0001").name == "1a2b3c4d"


def test_defaults_cost_nothing() -> None:
    assert len(encode(Orders(5, "", 7, 0, (Resync(),)))) < 25


def test_a_long_announcement_goes_in_pieces_that_are_numbered_on() -> None:
    items: list[Up] = [Arrived(str(n), "llama") for n in range(2 * ITEMS_MAX)]
    items += [Cancelled("0"), Announced(About("a-1"))]
    batches = in_batches("a-1", 3, 5, items)
    assert [(batch.generation, batch.number, len(batch.items)) for batch in batches] == [
        (3, 5, ITEMS_MAX),
        (3, 6, ITEMS_MAX),
        (3, 7, 2),
    ]
    assert [item for batch in batches for item in batch.items] == items
    assert in_batches("a-1", 3, 5, []) == []
