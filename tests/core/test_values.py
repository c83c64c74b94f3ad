"""Events and actions are plain values: they travel between processes and never change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core import Action, Event, Options, Scheduler
from forebay.core.events import NodeState

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS: tuple[type[msgspec.Struct], ...] = get_args(Event)
ACTIONS: tuple[type[msgspec.Struct], ...] = get_args(Action)

PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=8),
    int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Build any value of an annotation, with every field drawn."""
    if kind in PLAIN:
        return PLAIN[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
        return st.builds(kind, **{field.name: values_of(field.type) for field in fields})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=3)
    return st.one_of([values_of(argument) for argument in arguments])


CODECS: list[tuple[Callable[[Any], bytes], Callable[..., Any]]] = [
    (msgspec.msgpack.encode, msgspec.msgpack.decode),
    (msgspec.json.encode, msgspec.json.decode),
]


@given(value=values_of(Event))
@settings(max_examples=150, deadline=None)
def test_every_event_survives_the_wire(value: Any) -> None:
    for encode, decode in CODECS:
        assert decode(encode(value), type=Event) == value


@given(value=values_of(Action))
@settings(max_examples=150, deadline=None)
def test_every_action_survives_the_wire(value: Any) -> None:
    for encode, decode in CODECS:
        assert decode(encode(value), type=Action) == value


@pytest.mark.parametrize("kind", [*EVENTS, *ACTIONS, Options], ids=lambda kind: kind.__name__)
def test_nothing_can_be_changed_afterwards(kind: type[msgspec.Struct]) -> None:
    assert kind.__struct_config__.frozen
    assert kind.__struct_config__.tag == kind.__name__


def test_the_states_of_a_node_are_those_of_the_design() -> None:
    assert set(get_args(NodeState)) == {"online", "loading", "offline", "draining"}


def test_the_defaults_are_those_of_the_design() -> None:
    options = Options()
    assert (options.max_size, options.bytes_max, options.wait_s_max) == (100, 268_435_456, 60.0)
    assert options.priorities == ("high", "normal", "low")
    assert (options.class_order, options.fairness, options.when_full) == (
        "strict",
        "tokens",
        "class",
    )
    assert [options.weight_of(rank) for rank in range(3)] == [8.0, 4.0, 1.0]
    assert Scheduler().next_deadline_s() is None
