"""What the keys mean, and what survives the next picture."""

from __future__ import annotations

import json

import pytest

from forebay.terminal.values import read_hello, read_snapshot
from forebay.terminal.view import Order, View

from .conftest import made_view
from .scripted_gateway import hello, node, snapshot


def press(view: View, *keys: str) -> Order | None:
    order = None
    for key in keys:
        order = view.press(key, key if len(key) == 1 else None)
    return order


def waiting(view: View) -> int | None:
    return view.snapshot.queue.waiting if view.snapshot is not None else None


def show(view: View, **changed: object) -> None:
    view.take_snapshot(read_snapshot(json.dumps(snapshot(**changed))))


@pytest.mark.parametrize("down", ["j", "down"])
@pytest.mark.parametrize("up", ["k", "up"])
def test_the_cursor_moves_and_stops_at_both_ends(down: str, up: str) -> None:
    view = made_view()
    seen = []
    for key in (up, down, down, down, up):
        press(view, key)
        seen.append(view.chosen)
    assert seen == ["gpu1", "gpu2", "gpu3", "gpu3", "gpu2"]


def test_the_cursor_and_the_filter_survive_new_pictures() -> None:
    view = made_view()
    press(view, "j", "/", "g", "p", "u", "enter")
    show(view, nodes=[node("gpu0"), node("other"), node("gpu2"), node("gpu1")])
    assert [found.name for found in view.nodes()] == ["gpu0", "gpu2", "gpu1"]
    chosen = view.chosen_node()
    assert chosen is not None
    assert chosen.name == "gpu2"


def test_a_node_that_is_gone_for_a_moment_keeps_the_cursor() -> None:
    view = made_view()
    press(view, "j")
    show(view, nodes=[node("gpu1")])
    show(view)
    chosen = view.chosen_node()
    assert chosen is not None
    assert chosen.name == "gpu2"


@pytest.mark.parametrize(
    ("typed", "nodes", "models"),
    [
        ("gpu2", ["gpu2"], []),
        ("OFFLINE", ["gpu3"], []),
        ("gemma", ["gpu1", "gpu2", "gpu3"], ["gemma3:4b"]),
    ],
)
def test_the_filter_finds_nodes_and_models_by_text(
    typed: str, nodes: list[str], models: list[str]
) -> None:
    view = made_view()
    press(view, "/", *typed, "enter")
    assert [found.name for found in view.nodes()] == nodes
    assert [found.model for found in view.models()] == models


def test_keys_go_into_the_filter_while_it_is_typed() -> None:
    view = made_view()
    assert press(view, "/", "q", "d", "backspace", "2") is None
    assert view.filter == "q2"
    press(view, "escape")
    assert view.filter == ""
    assert not view.is_typing


def test_text_can_be_pasted_into_the_filter_and_is_bounded() -> None:
    view = made_view()
    view.paste("nothing")
    assert view.filter == ""
    press(view, "/")
    view.paste("gpu1\nrm -rf")
    assert view.filter == "gpu1"
    view.paste("x" * 1000)
    assert len(view.filter) == 100


def test_draining_asks_first_and_a_yes_orders_it() -> None:
    view = made_view()
    assert press(view, "j", "d") is None
    assert view.question == Order("drain", "gpu2")
    assert press(view, "y") == Order("drain", "gpu2")


@pytest.mark.parametrize("key", ["n", "escape", "enter", "d", "q"])
def test_anything_but_yes_does_nothing(key: str) -> None:
    view = made_view()
    press(view, "d")
    assert press(view, key) is None
    assert view.question is None
    assert view.message == "Nothing was done."


def test_the_question_is_about_the_node_it_was_asked_for() -> None:
    view = made_view()
    press(view, "j", "d")
    show(view, nodes=[node("gpu9")])
    assert press(view, "y") == Order("drain", "gpu2")


def test_only_a_drained_node_can_be_resumed_and_only_another_drained() -> None:
    view = made_view(nodes=[node("a", state="draining"), node("b")])
    press(view, "d")
    assert "draining already" in view.message
    assert press(view, "r", "y") == Order("resume", "a")
    press(view, "j", "r")
    assert "not draining" in view.message
    assert view.question is None


def test_who_is_no_admin_is_told_why_not() -> None:
    view = made_view(hello(admin=False))
    press(view, "d")
    assert view.question is None
    assert "--key-env" in view.message


def test_while_the_gateway_is_away_nothing_is_asked_of_it() -> None:
    view = made_view()
    view.lose("gone")
    press(view, "d")
    assert view.question is None
    assert view.message_is_bad


def test_paused_the_picture_stands_still_and_the_time_line_goes_on() -> None:
    view = made_view()
    press(view, "p")
    show(view, queue={"waiting": 77}, sample_number=1236)
    assert waiting(view) == 11
    assert len(view.timeline.depth(1000)) == 302
    press(view, "p")
    show(view, queue={"waiting": 77})
    assert waiting(view) == 77


def test_panels_are_chosen_by_number_and_in_turn() -> None:
    view = made_view()
    seen = []
    for key in ("3", "tab", "tab", "shift+tab", "1"):
        press(view, key)
        seen.append(view.panel)
    assert seen == [2, 3, 0, 3, 0]


def test_any_key_leaves_the_help_and_does_nothing_else() -> None:
    view = made_view()
    press(view, "?")
    seen = [view.is_helping]
    assert press(view, "d") is None
    assert [*seen, view.is_helping] == [True, False]
    assert view.question is None
    assert press(view, "q") == Order("quit")


def test_ctrl_c_leaves_from_everywhere() -> None:
    view = made_view()
    for key in ("/", "?", "d"):
        press(view, key)
        assert press(view, "ctrl+c") == Order("interrupt")


def test_a_restart_is_told_from_a_connection_that_broke() -> None:
    view = made_view()
    view.lose("gone")
    view.take_hello(read_hello(json.dumps(hello())))
    assert view.message == "The gateway is back."
    view.lose("gone")
    view.take_hello(read_hello(json.dumps(hello(epoch="other"))))
    assert "restarted" in view.message
