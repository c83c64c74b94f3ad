"""The app on a screen of 80 by 24: keys, clicks, and a gateway that comes and goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from textual.events import Paste

from forebay.terminal.app import Panel

from .conftest import made_app, on_screen, screen_text, shows
from .scripted_gateway import hello, node, request, snapshot

if TYPE_CHECKING:
    from .scripted_gateway import ScriptedGateway


async def test_it_shows_what_it_is_sent_and_q_leaves(gateway: ScriptedGateway) -> None:
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        screen = await shows(pilot, "11 of 100")
        assert "● live" in screen
        gateway.send(**snapshot(queue={"waiting": 13}))
        await shows(pilot, "13 of 100")
        await pilot.press("q")
    assert app.return_code == 0


async def test_draining_is_confirmed_sent_and_answered(gateway: ScriptedGateway) -> None:
    gateway.admin_answer = (200, {"name": "gpu2", "state": "draining", "in_flight": 2})
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "gpu2")
        await pilot.press("down", "d")
        await shows(pilot, "Drain gpu2? Nothing new starts there; 1 request may finish.")
        await pilot.press("y")
        await shows(pilot, "gpu2 is draining: nothing new starts there. 2 still run there.")
    assert "POST /admin/nodes/gpu2/drain" in gateway.asked


async def test_a_name_with_odd_letters_is_sent_as_it_is(gateway: ScriptedGateway) -> None:
    gateway.snapshot = snapshot(nodes=[node("a/b\x1b東 c", state="draining")])
    gateway.admin_answer = (200, {"state": "online"})
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "a/b?東 c")
        await pilot.press("r")
        await shows(pilot, "Resume a/b?")
        await pilot.press("y")
        await shows(pilot, "a/b?東 c is used again; it is online.")
    assert "POST /admin/nodes/a%2Fb%1B%E6%9D%B1%20c/resume" in gateway.asked


async def test_a_refusal_to_drain_is_shown(gateway: ScriptedGateway) -> None:
    error = {"code": "not_found", "message": "there is no node of that name"}
    gateway.admin_answer = (409, {"error": error})
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "gpu1")
        await pilot.press("d")
        await shows(pilot, "Drain gpu1?")
        await pilot.press("y")
        await shows(pilot, "gpu1 was not changed: the gateway says: there is no node of that name")


async def test_who_is_no_admin_is_told_and_nothing_is_sent(gateway: ScriptedGateway) -> None:
    gateway.hello = hello(admin=False)
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "gpu1")
        await pilot.press("d")
        await shows(pilot, "Only an admin's key may drain")
        await pilot.press("y")
    assert not [asked for asked in gateway.asked if not asked.startswith("GET")]


async def test_the_filter_and_the_cursor_survive_updates(gateway: ScriptedGateway) -> None:
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "gpu1")
        await pilot.press("j", "j", "/", *"gpu", "enter")
        gateway.send(nodes=[node("gpu0"), node("mac"), node("gpu3"), node("gpu9")])
        screen = await shows(pilot, "Nodes 3/4")
        assert app.nodes.chosen == "gpu3"
        assert "mac" not in screen
        await pilot.press("escape")
        await shows(pilot, "  mac")


async def test_letters_that_are_commands_can_be_typed_into_the_filter(
    gateway: ScriptedGateway,
) -> None:
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "gpu1")
        await pilot.press("slash", "q", "d", "question_mark", "slash", "tab", "G", "1", "space")
        await shows(pilot, "/ qd?/G1")


async def test_text_can_be_pasted_into_the_filter_and_is_bounded(gateway: ScriptedGateway) -> None:
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "gpu1")
        app.post_message(Paste("nothing"))
        await pilot.press("slash")
        app.post_message(Paste("gpu1\nrm -rf"))
        await shows(pilot, "Nodes 1/3")
        assert app.view.filter == "gpu1"
        app.post_message(Paste("x" * 1000))
        await pilot.press("z")
        await shows(pilot, "Nodes 0/3")
        assert app.view.filter == "gpu1z"
        await pilot.press("escape")
        await shows(pilot, "Nodes 3")
        await shows(pilot, "q quit")


async def test_every_key_does_what_it_says(gateway: ScriptedGateway) -> None:
    gateway.requests = (200, {"data": [request("a"), request("b")]})
    app = made_app(gateway.url)
    async with on_screen(app, (80, 50)) as pilot:
        await shows(pilot, "Line 2")
        for key, node in (("k", "gpu1"), ("j", "gpu2"), ("down", "gpu3"), ("up", "gpu2"),
                          ("G", "gpu3"), ("home", "gpu1"), ("pagedown", "gpu3")):  # fmt: skip
            await pilot.press(key)
            assert app.nodes.chosen == node
        for table in (app.requests, app.nodes):
            await pilot.press("tab")
            assert table.has_focus
        for key in ("space", "p", "p"):
            paused = app.view.is_paused
            await pilot.press(key)
            assert app.view.is_paused is not paused


async def test_enter_shows_all_that_is_known_of_what_is_chosen(gateway: ScriptedGateway) -> None:
    gateway.requests = (200, {"data": [request("r-one", reason="gpu1 is busy")]})
    app = made_app(gateway.url)
    async with on_screen(app, (80, 50)) as pilot:
        await shows(pilot, "Line 1")
        await pilot.press("j", "enter")
        for part in ("Node gpu2", "In memory", "2: qwen3:8b, gemma3:4b"):
            await shows(pilot, part)
        await pilot.press("x", "tab", "enter")
        for part in ("Request r-one", "gpu1 is busy", "alice"):
            await shows(pilot, part)


async def test_anything_but_yes_does_nothing(gateway: ScriptedGateway) -> None:
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "gpu1")
        for key in ("n", "escape", "enter", "d", "q", "x", "slash", "tab"):
            await pilot.press("d")
            await shows(pilot, "y yes, any other key no")
            await pilot.press(key)
            await shows(pilot, "no question", lambda text: "any other key" not in text)
        await pilot.press("y")
    assert not [asked for asked in gateway.asked if not asked.startswith("GET")]


async def test_any_key_leaves_the_help_and_does_nothing_else(gateway: ScriptedGateway) -> None:
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "gpu1")
        for key in ("d", "h", "x", "2"):
            await pilot.press("question_mark")
            await shows(pilot, "Keys and signs")
            await pilot.press(key)
            await shows(pilot, "no help", lambda text: "Keys and signs" not in text)
            assert "Drain" not in screen_text(app)


@pytest.mark.parametrize("keys", [(), ("slash",), ("question_mark",), ("d",)])
async def test_ctrl_c_leaves_from_everywhere(
    gateway: ScriptedGateway, keys: tuple[str, ...]
) -> None:
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "11 of 100")
        await pilot.press(*keys, "ctrl+c")
    assert app.return_value == 130


async def test_a_gateway_that_restarts_is_waited_for(gateway: ScriptedGateway) -> None:
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "11 of 100")
        await gateway.stop()
        screen = await shows(pilot, "✕ reconnecting, away for")
        assert "11 of 100" in screen
        gateway.hello = hello(epoch="another")
        await gateway.start()
        await shows(pilot, "● live")
        await shows(pilot, "The gateway has been restarted")


async def test_where_there_is_nothing_to_see_it_ends_with_the_reason(
    gateway: ScriptedGateway,
) -> None:
    await gateway.stop()
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        await pilot.pause()
        await shows(pilot, "the end", lambda _: app.problem is not None)
    assert app.problem is not None
    assert app.problem.is_away
    assert "forebay serve" in str(app.problem)


async def test_a_click_chooses_a_node_and_a_key(gateway: ScriptedGateway) -> None:
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        screen = await shows(pilot, "gpu3")
        row = next(y for y, line in enumerate(screen.splitlines()) if "gpu3 " in line)
        await pilot.click(offset=(5, row))
        assert app.nodes.chosen == "gpu3"
        screen = await shows(pilot, "? help")
        await pilot.click(offset=(screen.splitlines()[-1].index("help"), 23))
        await shows(pilot, "Keys")


@pytest.mark.parametrize("size", [(60, 20), (120, 40), (20, 5), (1, 1), (300, 100)])
async def test_any_size_can_be_drawn(gateway: ScriptedGateway, size: tuple[int, int]) -> None:
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "11 of 100")
        await pilot.resize_terminal(*size)
        await shows(pilot, "all lines", lambda text: text.count("\n") == size[1] - 1)


async def test_paused_the_picture_stands_still(gateway: ScriptedGateway) -> None:
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "11 of 100")
        await pilot.press("p")
        await shows(pilot, "paused, p goes on")
        gateway.send(**snapshot(queue={"waiting": 13}, sample_number=1236))
        await shows(pilot, "the sample", lambda _: len(app.view.timeline.depth(900)) == 302)
        assert "11 of 100" in screen_text(app)
        await pilot.press("p")
        gateway.send()
        await shows(pilot, "13 of 100")


# -- what is sent over a slow line


async def test_only_what_has_changed_is_sent(
    gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "11 of 100")
        sent: list[str | None] = []
        for panel in app.query(Panel):
            monkeypatch.setattr(panel, "update", lambda _, name=panel.id: sent.append(name))
        gateway.send(**snapshot(queue={"waiting": 12}))
        await shows(pilot, "the number", lambda _: "figures" in sent)
        assert set(sent) <= {"figures", "header"}  # the latter has the clock
        sent.clear()
        app.draw()
        assert not sent


# -- the line


async def test_the_line_is_shown_and_what_is_chosen_is_cancelled(gateway: ScriptedGateway) -> None:
    running = request("r-run", state="running", user="bob", node="gpu1", reason=None)
    rows = [request("r-two", position=2, user="carol"), request("r-one"), running]
    gateway.requests = (200, {"data": rows})
    gateway.admin_answer = (200, {"id": "r-one", "state": "cancelled"})
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "gpu1")
        await pilot.press("tab")
        screen = await shows(pilot, "carol")  # the last of three
        assert [name for name in screen.split() if name in ("bob", "alice", "carol")] == [
            "bob", "alice", "carol"
        ]  # fmt: skip
        assert "12 s" in screen
        assert "d drain" not in screen
        await pilot.press("down", "c")
        await shows(pilot, "Cancel r-one? Its client gets an error (499).")
        gateway.requests = (200, {"data": rows[:1]})
        await pilot.press("y")
        await shows(pilot, "r-one is cancelled.")
        await shows(pilot, "Line 1")
    assert "DELETE /v1/queue/r-one" in gateway.asked


async def test_who_may_not_see_the_line_is_told_why(gateway: ScriptedGateway) -> None:
    error = {"code": "forbidden", "message": "without keys, this is for this machine only"}
    gateway.requests = (403, {"error": error})
    app = made_app(gateway.url)
    async with on_screen(app, (120, 50)) as pilot:
        await shows(pilot, "this is for this machine only")
        await pilot.press("tab", "c")
        await shows(pilot, "There is nothing to choose.")


async def test_requests_are_asked_for_when_they_come_to_the_screen(
    gateway: ScriptedGateway,
) -> None:
    app = made_app(gateway.url)
    async with on_screen(app) as pilot:
        await shows(pilot, "gpu1")
        await pilot.press("tab")
        await shows(pilot, "nobody waits and nothing runs")
    assert [path for path in gateway.asked if "requests" in path]


async def test_the_filter_finds_requests_by_their_user(gateway: ScriptedGateway) -> None:
    gateway.requests = (200, {"data": [request("a", user="bob"), request("b")]})
    app = made_app(gateway.url)
    async with on_screen(app, (80, 50)) as pilot:
        await shows(pilot, "Line 2")
        await pilot.press("slash", *"bob", "enter")
        screen = await shows(pilot, "Line 1/2")
        assert "alice" not in screen
