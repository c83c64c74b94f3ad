"""The picture: complete at 80x24, whole at any size, harmless whatever it is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.terminal.app import STYLES
from forebay.terminal.lines import cells_of, text_of
from forebay.terminal.pen import Pen
from forebay.terminal.picture import draw, draw_still
from forebay.terminal.side_panels import trouble_lines
from forebay.terminal.values import read_hello, read_snapshot
from forebay.terminal.view import Order, View

from .conftest import drawn, made_view
from .scripted_gateway import hello, model, node, snapshot
from .test_pen import NASTY, is_harmless

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.terminal.lines import Line

# -- complete


def test_everything_is_on_80_by_24() -> None:
    screen = drawn(made_view())
    for part in (
        "Forebay 0.5.0", "http://127.0.0.1:7800", "● live", "11 of 100", "waiting",
        "5 of 6", "processing", "1.2 s", "average wait", "42", "served / min",
        "3", "rejected / min",
        "high", "normal", "low", "Last 5 min", "max",
        "▶ gpu1", "● online", "✕ offline", "▰▱", "1/2", "▰▱▱▱", "qwen3:8b", "93%", "8.5/24G", "15",
        "14 min", "Models", "gemma3:4b", "6.1 s", "Jobs", "chat", "1 batch: 412/1000",
        "4 sessions, 1 waiting", "Problems", "queue_full", "40",
        "✕ Node gpu3 has been offline for 2 min. Last error: connection refused.",
        "→ Start its server, or take it out with: forebay nodes remove gpu3",
        "q quit", "d drain", "r resume", "/ filter", "p pause", "? help",
    ):  # fmt: skip
        assert part in screen, f"{part}\n{screen}"
    assert screen.count("\n") == 23


def test_without_trouble_it_says_so() -> None:
    screen = drawn(made_view(troubles=[], problems=[], jobs={}, sessions={}))
    assert "✓ Nothing is wrong." in screen
    assert "none in 15 min" in screen


def test_what_a_demo_says_is_shown() -> None:
    caption = {"en": "A greedy script sends 40 requests at once.", "ja": "x"}
    assert "→ A greedy script sends 40 requests at once." in drawn(made_view(caption=caption))


def test_no_nodes_and_no_match_say_what_to_do() -> None:
    assert "forebay nodes add URL" in drawn(made_view(nodes=[]))
    view = made_view()
    view.filter = "nothing"
    assert "No node matches /nothing; Esc shows all." in drawn(view)


def test_numbers_that_are_not_known_yet_are_not_made_up() -> None:
    screen = drawn(
        made_view(queue={"average_wait_seconds": None}, nodes=[node("n", gpu_load=None)])
    )
    assert " -  " in screen
    assert "None" not in screen


def test_a_queue_that_is_off_and_a_gateway_that_stops_are_told() -> None:
    assert "queue off" in drawn(made_view(queue={"enabled": False}))
    assert "◒ stopping" in drawn(made_view(draining=True))
    assert "✕ not ready" in drawn(made_view(ready=False))


def test_more_nodes_than_rows_are_shown_around_the_cursor() -> None:
    view = made_view(nodes=[node(f"gpu{i:02}") for i in range(40)])
    assert "Nodes 1-" in drawn(view)
    view.choose("gpu39")
    screen = drawn(view)
    assert "▶ gpu39" in screen
    assert "/40" in screen


def test_many_troubles_are_counted_and_the_fourth_panel_has_them_all() -> None:
    troubles = [
        {"level": level, "text": {"en": f"Trouble {i}."}, "advice": {"en": f"Advice {i}."}}
        for i, level in enumerate(("error", "warning", "info", "info", "info", "info"))
    ]
    view = made_view(troubles=troubles, nodes=[node(f"gpu{i}") for i in range(9)])
    screen = drawn(view)
    assert "✕ Trouble 0." in screen
    assert "more: key 4 shows them" in screen
    view.press("4")
    screen = drawn(view)
    assert all(f"Trouble {i}." in screen and f"Advice {i}." in screen for i in range(6))
    assert "▲ Trouble 1." in screen


def test_advice_is_given_as_far_as_there_is_room() -> None:
    troubles = [{"text": {"en": f"T{i}."}, "advice": {"en": f"A{i}."}} for i in range(3)]
    lines = [text_of(line).strip() for line in _trouble_lines(troubles, 5)]
    assert lines == ["Troubles 3", "• T0.", "→ A0.", "• T1.", "→ A1.", "• T2."]


def _trouble_lines(troubles: list[dict[str, Any]], rows: int) -> list[Line]:
    told = made_view(troubles=troubles).snapshot
    assert told is not None
    return trouble_lines(Pen(), told, 80, rows)


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("2", ("Node gpu1", "In memory", "Last error", "2: qwen3:8b, gemma3:4b")),
        ("3", ("Models", "Jobs", "Done")),
        ("4", ("Troubles 1", "Problems", "Try again after Retry-After.")),
        ("?", ("Keys", "Signs", "drain the chosen node", "✕ offline")),
    ],
)
def test_each_panel_shows_its_own(key: str, parts: tuple[str, ...]) -> None:
    view = made_view()
    view.press(key)
    screen = drawn(view)
    assert all(part in screen for part in parts), screen


def test_wider_and_taller_shows_more() -> None:
    screen = drawn(made_view(), 160, 50)
    for part in ("Kind", "ollama", "Last error", "connection refused", "P90", "average run", "Ago"):
        assert part in screen, screen


def test_sixty_columns_keep_what_matters() -> None:
    screen = drawn(made_view(), 60, 24)
    for part in ("11 of 100", "reject/min", "high", "gpu1", "✕ offline", "Troubles", "q quit"):
        assert part in screen, screen


def test_who_may_not_drain_is_told_in_the_last_line() -> None:
    screen = drawn(made_view(hello(admin=False)))
    assert "d r for admins only" in screen.splitlines()[-1]


def test_a_lost_connection_is_told_with_its_reason() -> None:
    view = made_view()
    view.now_s = 10.0
    view.lose("No gateway answers")
    view.now_s = 22.0
    screen = drawn(view)
    assert "✕ reconnecting, away for 12 s" in screen
    assert "No gateway answers" in screen
    assert "11 of 100" in screen  # what was known stays


def test_one_picture_for_a_pipe_has_all_nodes_and_neither_keys_nor_cursor() -> None:
    view = made_view(nodes=[node(f"gpu{i:02}") for i in range(40)])
    view.is_still = True
    text = "\n".join(text_of(line) for line in draw_still(Pen(), view, 80))
    assert all(f"gpu{i:02}" in text for i in range(40))
    assert "quit" not in text
    assert "▶" not in text


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


def test_a_fleet_is_one_line_where_there_is_little_room() -> None:
    screen = drawn(made_view(fleet=fleet()), 80, 21)
    words = "Gateways 2/3 one queue for all: ★ 1a2b3c4d  ● 2c9e01ab ▲  ✕ 9abcde01"
    assert words in screen, screen
    for part in ("11 of 100", "▶ gpu1", "Models", "Troubles", "q quit"):
        assert part in screen, screen


def test_a_fleet_is_a_table_where_there_is_room_and_beside_the_nodes() -> None:
    view = made_view(fleet=fleet(counted_seconds_ago=5.0))
    high = drawn(view, 120, 40)
    view.press("2")
    for screen in (high, drawn(view, 120, 30)):
        for part in (
            "Gateways 2/3", "1a2b3c4d here", "★ leading", "● following", "✕ lost", "42 s",
            "0.7.0 ▲ other settings, other version", "leader no. 7",
            "figures 5.0 s old",
        ):  # fmt: skip
            assert part in screen, screen


@pytest.mark.parametrize(
    ("mode", "words"),
    [("seeking", "looking for a leader"), ("alone", "alone, the store is out of reach"),
     ("cut_off", "cut off, nothing new starts here"), ("new", "new")],
)  # fmt: skip
def test_the_mode_of_a_fleet_is_told_in_words(mode: str, words: str) -> None:
    assert f"Gateways 2/3 {words}: " in drawn(made_view(fleet=fleet(mode=mode)), 80, 21)


def test_a_gateway_without_the_store_claims_to_know_of_no_other() -> None:
    screen = drawn(made_view(fleet=fleet(mode="cut_off")), 120, 40)
    for part in ("1a2b3c4d here    ? alone", "2c9e01ab         ? unseen", "✕ lost"):
        assert part in screen, screen
    assert "leading" not in screen


def test_a_gateway_on_its_own_shows_no_fleet() -> None:
    assert "Gateways" not in drawn(made_view(), 100, 50)


def test_a_guarded_node_says_so() -> None:
    view = made_view(nodes=[node("gpu1", guarded=True)])
    assert "ollama, guarded, in this state" in drawn(view)
    view.press("2")
    assert "ollama, guarded" in drawn(view)


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


def change_nothing(view: View) -> None:
    """Leave the view as it is."""


def lose(view: View) -> None:
    view.lose(NASTY[1])


def ask(view: View) -> None:
    view.question = Order("drain", NASTY[0])


def type_filter(view: View) -> None:
    view.press("/")
    view.paste("東\x1b[31m")


STATES = [change_nothing, lose, ask, type_filter]


@settings(max_examples=150, deadline=None)
@given(
    told=PICTURE, cells=st.integers(0, 170), rows=st.integers(0, 60), panel=st.integers(0, 3),
    ascii_only=st.booleans(), change=st.sampled_from(STATES),
)  # fmt: skip
def test_any_picture_at_any_size_is_whole_and_harmless(
    *, told: dict[str, Any], cells: int, rows: int, panel: int, ascii_only: bool,
    change: Callable[[View], None],
) -> None:  # fmt: skip
    view = View("http://127.0.0.1:7800", panel=panel)
    view.take_hello(read_hello(json.dumps(hello())))
    view.take_snapshot(read_snapshot(json.dumps(told)))
    change(view)
    lines = draw(Pen(ascii_only=ascii_only), view, cells, rows)
    assert len(lines) == rows
    assert [cells_of(line) for line in lines] == [cells] * rows
    for line in lines:
        assert is_harmless(text_of(line))
        assert text_of(line).isascii() or not ascii_only
        assert all(piece.style in STYLES for piece in line)


@settings(max_examples=50, deadline=None)
@given(told=PICTURE, cells=st.integers(0, 200))
def test_any_picture_for_a_pipe_is_as_wide_as_asked(told: dict[str, Any], cells: int) -> None:
    view = View("http://127.0.0.1:7800", is_still=True)
    view.take_hello(read_hello(json.dumps(hello())))
    view.take_snapshot(read_snapshot(json.dumps(told)))
    for line in draw_still(Pen(), view, cells):
        assert cells_of(line) <= max(20, cells)
        assert is_harmless(text_of(line))


@pytest.mark.parametrize("name", NASTY)
def test_names_that_try_to_be_commands_are_shown_as_text(name: str) -> None:
    trouble = {"level": "error", "text": {"en": name}, "advice": {"en": name}}
    try:
        view = made_view(
            nodes=[node(name, last_error=name)], models=[model(name)], troubles=[trouble],
            caption={"en": name},
        )  # fmt: skip
    except ValueError:
        assert "\ud800" in name  # a lone surrogate is not JSON: that event is refused
        return
    for panel in "1234":
        view.press(panel)
        assert is_harmless(drawn(view).replace("\n", ""))
    assert "[red]markup" in drawn(view) or "[red]" not in name


def test_a_picture_does_not_change_without_cause() -> None:
    view = made_view()
    first = draw(Pen(), view, 80, 24)
    view.take_snapshot(read_snapshot(json.dumps(snapshot())))
    assert draw(Pen(), view, 80, 24) == first
