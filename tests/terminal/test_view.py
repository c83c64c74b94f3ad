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


def test_only_a_drained_node_can_be_resumed_and_only_another_drained() -> None:
    view = made_view(nodes=[node("a", state="draining"), node("b")])
    assert "draining already" in view.problem_with("drain", "a")
    assert "not draining" in view.problem_with("resume", "b")
    assert view.problem_with("resume", "a") == view.problem_with("drain", "b") == ""


def test_while_the_gateway_is_away_nothing_is_asked_of_it() -> None:
    view = made_view()
    view.lose("gone")
    assert "cannot be reached" in view.problem_with("drain", "gpu1")


def test_a_restart_is_told_from_a_connection_that_broke() -> None:
    view = made_view()
    view.lose("gone")
    assert view.take_hello(read_hello(json.dumps(hello()))) == "The gateway is back."
    view.lose("gone")
    assert "restarted" in view.take_hello(read_hello(json.dumps(hello(epoch="other"))))
