"""What is chosen, filtered and asked for, and what survives the next snapshot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from forebay.sdk.status import read_hello, read_snapshot

from .conftest import made_view
from .scripted_gateway import hello, node, snapshot

if TYPE_CHECKING:
    from forebay.terminal.view import TopView


def show(view: TopView, **changed: object) -> None:
    view.take_snapshot(read_snapshot(json.dumps(snapshot(**changed))))


def test_the_cursor_moves_and_stops_at_both_ends() -> None:
    view = made_view()
    seen = []
    for by in (-1, 1, 1, 1, -1, 100, -100):
        view.move(by)
        seen.append(view.chosen)
    assert seen == ["gpu1", "gpu2", "gpu3", "gpu3", "gpu2", "gpu3", "gpu1"]


def test_the_cursor_and_the_filter_survive_new_pictures() -> None:
    view = made_view()
    view.move(1)
    view.filter = "gpu"
    show(view, nodes=[node("gpu0"), node("other"), node("gpu2"), node("gpu1")])
    assert [found.name for found in view.nodes()] == ["gpu0", "gpu2", "gpu1"]
    chosen = view.chosen_node()
    assert chosen is not None
    assert chosen.name == "gpu2"


def test_a_node_that_is_gone_for_a_moment_keeps_the_cursor() -> None:
    view = made_view()
    view.move(1)
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
    view.filter = typed
    assert [found.name for found in view.nodes()] == nodes
    assert [found.model for found in view.models()] == models


def test_draining_asks_first_and_the_question_stays_about_that_node() -> None:
    view = made_view()
    view.move(1)
    view.ask("drain")
    show(view, nodes=[node("gpu9")])
    assert view.question == ("drain", "gpu2")


def test_only_a_drained_node_can_be_resumed_and_only_another_drained() -> None:
    view = made_view(nodes=[node("a", state="draining"), node("b")])
    view.ask("drain")
    assert "draining already" in view.message
    view.move(1)
    view.ask("resume")
    assert "not draining" in view.message
    assert view.question is None
    view.move(-1)
    view.ask("resume")
    assert view.question == ("resume", "a")


def test_who_is_no_admin_is_told_why_not() -> None:
    view = made_view(hello(admin=False))
    view.ask("drain")
    assert view.question is None
    assert "--key-env" in view.message


def test_while_the_gateway_is_away_nothing_is_asked_of_it() -> None:
    view = made_view()
    view.lose("gone")
    view.ask("drain")
    assert view.question is None
    assert view.message_is_bad


def test_paused_the_snapshot_stays_and_the_time_line_goes_on() -> None:
    view = made_view()
    view.is_paused = True
    show(view, queue={"waiting": 77}, sample_number=1236)
    assert view.snapshot.queue.waiting == 11
    assert len(view.timeline.depth(1000)) == 302
    view.is_paused = False
    show(view, queue={"waiting": 77})
    assert view.snapshot.queue.waiting == 77


def test_a_restart_is_told_from_a_connection_that_broke() -> None:
    view = made_view()
    view.lose("gone")
    view.take_hello(read_hello(json.dumps(hello())))
    assert view.message == "The gateway is back."
    view.lose("gone")
    view.take_hello(read_hello(json.dumps(hello(epoch="other"))))
    assert "restarted" in view.message
