"""The panels: complete at 80x24, harmless at any size, whatever they are told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from forebay.sdk.status import UnreadableEvent, read_hello, read_snapshot
from forebay.terminal import panels
from forebay.terminal.text import to_ascii
from forebay.terminal.view import TopView

from .conftest import drawn, made_view
from .scripted_gateway import hello, model, node, snapshot
from .test_text import NASTY, is_harmless

if TYPE_CHECKING:
    from rich.text import Text

Panel = Callable[[TopView, int, int], "list[Text]"]


def shown(panel: Panel, view: TopView, cells: int = 80, rows: int = 24) -> str:
    """Return what one panel shows."""
    return "\n".join(text.plain.rstrip() for text in panel(view, cells, rows))


def facts(view: TopView) -> str:
    """Return what is known of the first node."""
    return "\n".join(text.plain for text in panels.node_facts(view, "gpu1", 80))


# -- the whole screen


async def test_everything_is_on_80_by_24() -> None:
    (screen,) = await drawn(made_view())
    for part in (
        "Forebay 0.5.0", "http://127.0.0.1:7800", "● live", "11 of 100", "waiting",
        "5 of 6", "running", "1.2 s", "mean wait", "42", "completed",
        "3", "refused",
        "high", "normal", "low", "Last 5 min", "max",
        "gpu1", "● online", "✕ offline", "▰▱", "1/2", "▰▱▱▱", "qwen3:8b", "93%", "8.5/24G", "15",
        "14 min", "Models", "gemma3:4b", "6.1 s", "Jobs", "chat", "1 batch: 412/1000",
        "4 sessions, 1 waiting", "Problems", "queue_full", "40",
        "✕ Node gpu3 has been offline for 2 min. Last error: connection refused.",
        "→ Start its server, or take it out with: forebay nodes remove gpu3",
        "q quit", "d drain", "r resume", "/ filter", "p pause", "? help",
    ):  # fmt: skip
        assert part in screen, f"{part}\n{screen}"
    assert screen.count("\n") == 23


async def test_wider_and_taller_shows_more() -> None:
    (screen,) = await drawn(made_view(), 160, 50)
    for part in (
        "Kind", "ollama", "Last error", "connection refused", "P90", "mean run", "Ago",
        "Since the gateway began:", "17 refused", "╺┓ ╺┓", "waiting of 100",
    ):  # fmt: skip
        assert part in screen, screen


async def test_sixty_columns_keep_what_matters() -> None:
    (screen,) = await drawn(made_view(), 60, 24)
    for part in ("11 of 100", "refused", "high", "gpu1", "✕ offline", "Troubles", "q quit"):
        assert part in screen, screen


async def test_in_a_narrow_terminal_jobs_are_below_the_models() -> None:
    (screen,) = await drawn(made_view(), 55, 40)
    for part in ("gemma3:4b", "2/2", "P90", "Jobs", "Gone", "1 batch: 412/1000"):
        assert part in screen, screen


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_with_ascii_only_there_is_nothing_else(size: tuple[int, int]) -> None:
    view = made_view(nodes=[node("東京")], models=[model("café")], fleet=fleet())
    (screen,) = await drawn(view, *size, is_ascii=True)
    assert screen.isascii()
    assert "* online" in screen
    assert "????" in screen


# -- single panels


def test_without_trouble_it_says_so() -> None:
    view = made_view(troubles=[], problems=[], jobs={}, sessions={})
    assert "✓ Nothing is wrong." in shown(panels.troubles, view)
    assert "none in 15 min" in shown(panels.problems, view)
    assert shown(panels.jobs, view).endswith("none")


def test_what_a_demo_says_is_shown() -> None:
    caption = {"en": "A greedy script sends 40 requests at once.", "ja": "x"}
    view = made_view(caption=caption)
    assert "→ A greedy script sends 40 requests at once." in shown(panels.caption, view)


def test_no_nodes_and_no_match_say_what_to_do() -> None:
    assert "forebay nodes add URL" in shown(panels.nodes, made_view(nodes=[]))
    view = made_view()
    view.filter = "nothing"
    assert "no node matches /nothing; Esc shows all" in shown(panels.nodes, view)


def test_numbers_that_are_not_known_yet_are_not_made_up() -> None:
    view = made_view(queue={"average_wait_seconds": None}, nodes=[node("n", gpu_load=None)])
    assert " -  " in shown(panels.figures, view)
    assert "None" not in shown(panels.nodes, view)


def test_a_queue_that_is_off_and_a_gateway_that_stops_are_told() -> None:
    assert "queue off" in shown(panels.figures, made_view(queue={"enabled": False}))
    assert "◒ stopping" in shown(panels.header, made_view(draining=True))
    assert "✕ not ready" in shown(panels.header, made_view(ready=False))


async def test_of_more_nodes_than_rows_the_chosen_one_is_on_the_screen() -> None:
    view = made_view(nodes=[node(f"gpu{i:02}") for i in range(40)])
    first, last = await drawn(view, 80, 24, "G")
    assert "Nodes 40" in first
    assert ("gpu00" in first, "gpu39" in first) == (True, False)
    assert ("gpu00" in last, "gpu39" in last) == (False, True)


def test_every_trouble_is_there_with_its_advice() -> None:
    troubles = [
        {"level": level, "text": {"en": f"T{i}."}, "advice": {"en": f"A{i}."}}
        for i, level in enumerate(("error", "warning", "info"))
    ]
    lines = panels.troubles(made_view(troubles=troubles), 80, 6)
    texts = [text.plain.strip() for text in lines]
    assert texts == ["Troubles 3", "✕ T0.", "→ A0.", "▲ T1.", "→ A1.", "• T2.", "→ A2."]


def test_a_lost_connection_is_told_with_its_reason() -> None:
    view = made_view()
    view.now_s = 10.0
    view.lose("No gateway answers")
    view.now_s = 22.0
    assert "✕ reconnecting, away for 12 s" in shown(panels.header, view)
    assert "No gateway answers" in shown(panels.caption, view)
    assert "11 of 100" in shown(panels.figures, view, 80, 2)  # what was known stays


def test_a_node_whose_slots_were_found_says_why() -> None:
    view = made_view(nodes=[node("gpu1", slots=8, slots_reason="16 at once gave no more")])
    assert "8: 16 at once gave no more" in facts(view)
    fixed = facts(made_view(nodes=[node("gpu1", slots=8)]))
    assert re.search(r"^ *Slots +8$", fixed, re.M), fixed


def test_the_speed_of_a_node_and_when_it_was_measured_are_shown() -> None:
    slow = node("gpu1", speed=0.4, speed_measured_seconds_ago=180.0)
    view = made_view(nodes=[slow, node("gpu2")])
    head, first, second = shown(panels.nodes, view, 100, 3).splitlines()
    assert (head.split()[-1], first.split()[-1], second.split()[-1]) == ("Speed", "0.40x", "·")
    assert "0.40 x usual, measured 3 min ago" in facts(view)
    assert re.search(r"Speed +not measured", facts(made_view(nodes=[node("gpu1")])))


def test_a_guarded_node_says_so() -> None:
    view = made_view(nodes=[node("gpu1", guarded=True)])
    assert "ollama, guarded" in facts(view)
    assert "tokens free" not in facts(view)
    view = made_view(nodes=[node("gpu1", kv_free_tokens=52_000)])
    assert "52,000 tokens free" in facts(view)


def test_what_a_pipe_gets_has_all_nodes_and_no_keys() -> None:
    view = made_view(nodes=[node(f"gpu{i:02}") for i in range(40)])
    text = panels.once(view, 80)
    assert all(f"gpu{i:02}" in text for i in range(40))
    assert "quit" not in text


# -- a fleet


def fleet(**changed: Any) -> dict[str, Any]:
    """Return three gateways that share a queue, one of them lost."""
    here = {"name": "1a2b3c4d", "state": "leading", "version": "0.6.0", "waiting": 3, "lent": 1}
    odd = {"name": "2c9e01ab", "state": "following", "version": "0.7.0", "same_settings": False}
    lost = {"name": "9abcde01", "state": "lost", "version": "0.6.0", "heard_seconds": 42.0}
    return {
        "mode": "coordinated", "epoch": 7, "me": "1a2b3c4d", "replicas": [here, odd, lost],
        "failovers_total": 2, "counted_seconds_ago": 0.0, **changed,
    }  # fmt: skip


async def test_a_fleet_is_shown_gateway_by_gateway() -> None:
    (screen,) = await drawn(made_view(fleet=fleet(counted_seconds_ago=5.0)), 120, 40)
    for part in (
        "Gateways 2/3", "1a2b3c4d here", "★ leading", "● following", "✕ lost", "42 s",
        "0.7.0 ▲ other settings, other version", "leader no. 7",
        "figures 5.0 s old",
    ):  # fmt: skip
        assert part in screen, screen


@pytest.mark.parametrize(
    ("mode", "words"),
    [("seeking", "looking for a leader"), ("alone", "alone, the store is unreachable"),
     ("cut_off", "cut off, nothing new starts here"), ("new", "new")],
)  # fmt: skip
def test_the_mode_of_a_fleet_is_told_in_words(mode: str, words: str) -> None:
    view = made_view(fleet=fleet(mode=mode))
    assert words in shown(panels.fleet, view, 120, 4)


def test_a_gateway_without_the_store_claims_to_know_of_no_other() -> None:
    text = shown(panels.fleet, made_view(fleet=fleet(mode="cut_off")), 120)
    for part in ("1a2b3c4d here    ? alone", "2c9e01ab         ? unseen", "✕ lost"):
        assert part in text, text
    assert "leading" not in text


def test_a_gateway_on_its_own_shows_no_fleet() -> None:
    assert shown(panels.fleet, made_view()) == ""


# -- whole and harmless

NUMBER = st.one_of(st.integers(-5, 10**6), st.integers(-(10**18), 10**18))
SECONDS = st.none() | st.floats(-1e3, 1e12, allow_nan=False)
JSON_NASTY = [text for text in NASTY if "\ud800" not in text]
NAME = st.text(max_size=40) | st.sampled_from(JSON_NASTY)
WORDS = st.fixed_dictionaries({"en": NAME})
NODE = st.fixed_dictionaries({
    "name": NAME, "kind": st.none() | NAME, "state_seconds": SECONDS,
    "state": st.sampled_from(["online", "loading", "offline", "draining", "bar"]) | NAME,
    "slots": NUMBER, "in_flight": NUMBER, "models": st.lists(NAME, max_size=3),
    "models_total": NUMBER, "loaded": st.none() | st.lists(NAME, max_size=2),
    "failing": st.lists(NAME, max_size=2), "gpu_load": SECONDS, "vram_used_bytes": SECONDS,
    "vram_total_bytes": SECONDS, "failures": st.dictionaries(NAME, NUMBER, max_size=2),
    "last_error": st.none() | NAME,
})  # fmt: skip
MODEL = st.fixed_dictionaries({
    "model": NAME, "waiting": NUMBER, "processing": NUMBER, "slots": NUMBER,
    "wait_p50_seconds": SECONDS, "wait_p90_seconds": SECONDS,
})  # fmt: skip
JOB = st.fixed_dictionaries({"type": NAME, "queued": NUMBER, "failed": NUMBER})
PROBLEM = st.fixed_dictionaries({
    "code": NAME, "kind": NAME, "last_minute": NUMBER, "seconds_ago": SECONDS, "remedy": WORDS,
})  # fmt: skip
TROUBLE = st.fixed_dictionaries({"level": NAME, "text": WORDS, "advice": WORDS})
QUEUE = st.fixed_dictionaries({
    "waiting": NUMBER, "processing": NUMBER, "max_size": NUMBER, "average_wait_seconds": SECONDS,
    "by_priority": st.dictionaries(NAME, NUMBER, max_size=5), "served_per_minute": NUMBER,
    "rejected_per_minute": NUMBER, "served_total": NUMBER,
})  # fmt: skip
REPLICA = st.fixed_dictionaries({
    "name": NAME, "state": st.sampled_from(["leading", "following", "lost"]) | NAME,
    "version": NAME, "waiting": NUMBER, "running": NUMBER, "lent": NUMBER,
    "heard_seconds": SECONDS, "same_settings": st.booleans(),
})  # fmt: skip
FLEET = st.fixed_dictionaries({
    "mode": st.sampled_from(["coordinated", "alone", "cut_off", "seeking"]) | NAME, "me": NAME,
    "epoch": NUMBER, "replicas": st.lists(REPLICA, max_size=5),
    "counted_seconds_ago": SECONDS,
})  # fmt: skip
PICTURE = st.fixed_dictionaries({
    "uptime_seconds": st.floats(0, 1e12), "queue": QUEUE,
    "models": st.lists(MODEL, max_size=4), "nodes": st.lists(NODE, max_size=4),
    "jobs": st.fixed_dictionaries({"types": st.lists(JOB, max_size=3)}),
    "problems": st.lists(PROBLEM, max_size=3), "troubles": st.lists(TROUBLE, max_size=3),
    "caption": st.none() | WORDS, "sample_number": st.integers(0, 10**9),
    "sample": st.fixed_dictionaries({"depth": st.dictionaries(NAME, NUMBER, max_size=3)}),
    "fleet": st.none() | FLEET,
})  # fmt: skip


def change_nothing(view: TopView) -> None:
    """Leave the view as it is."""


def lose(view: TopView) -> None:
    view.lose(NASTY[1])


def filter_by_nasty_text(view: TopView) -> None:
    view.filter = "東\x1b[31m"


STATES = [change_nothing, lose, filter_by_nasty_text]
PANELS = [
    panels.header, panels.caption, panels.figures, panels.queue_bars,
    panels.queue_chart, panels.fleet, panels.nodes, panels.models, panels.jobs,
    panels.problems, panels.remedies, panels.troubles,
]  # fmt: skip


def made_of(told: dict[str, Any]) -> TopView:
    view = TopView("http://127.0.0.1:7800")
    view.take_hello(read_hello(json.dumps(hello())))
    view.take_snapshot(read_snapshot(json.dumps(told)))
    return view


@settings(max_examples=60, deadline=None)
@given(
    told=PICTURE,
    cells=st.integers(0, 170),
    rows=st.integers(0, 60),
    change=st.sampled_from(STATES),
)
def test_any_panel_at_any_size_is_harmless(
    *, told: dict[str, Any], cells: int, rows: int, change: Callable[[TopView], None]
) -> None:
    view = made_of(told)
    change(view)
    for panel in PANELS:
        for text in panel(view, cells, rows):
            assert is_harmless(text.plain)
            assert to_ascii(text.plain).isascii()
            assert cell_len(to_ascii(text.plain)) == text.cell_len


@settings(max_examples=30, deadline=None)
@given(told=PICTURE, cells=st.integers(0, 200))
def test_what_a_pipe_gets_is_as_wide_as_asked(told: dict[str, Any], cells: int) -> None:
    for text in panels.once(made_of(told), cells).splitlines():
        assert cell_len(text) <= max(20, cells)
        assert is_harmless(text)


async def test_names_that_try_to_be_commands_are_shown_as_text() -> None:
    view = made_view(
        nodes=[node(name, last_error=name) for name in JSON_NASTY],
        models=[model(name) for name in JSON_NASTY],
        troubles=[
            {"level": "error", "text": {"en": name}, "advice": {"en": name}} for name in JSON_NASTY
        ],
        caption={"en": JSON_NASTY[0]},
    )
    for screen in await drawn(view, 160, 90, "enter", "x", "d"):
        assert is_harmless(screen.replace("\n", ""))
        assert "[red]markup[/red]" in screen


def test_a_snapshot_with_what_is_no_text_is_refused() -> None:
    with pytest.raises(UnreadableEvent):
        made_view(nodes=[node("\ud800 alone")])


def test_a_panel_does_not_change_without_cause() -> None:
    view = made_view()
    first = [panel(view, 80, 10) for panel in PANELS]
    view.take_snapshot(read_snapshot(json.dumps(snapshot())))
    assert [panel(view, 80, 10) for panel in PANELS] == first
