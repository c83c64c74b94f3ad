"""Sessions over a restart, and with a ledger that fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from forebay.gateway.gateway import Gateway

from .session_faults import Broken, restart, until_refused
from .session_steps import Http, answer, follow, look, new_session, prompt, turn

if TYPE_CHECKING:
    from forebay.testing import FakeNode

    from ..conftest import Rig


async def with_a_turn(rig: Rig, **settings: Any) -> tuple[FakeNode, str]:
    """Start a gateway, and have a session with one completed turn."""
    node = await rig.node()
    await rig.start(node, **settings)
    session = await new_session(rig, system="be kind", maxTokens=50, options={"seed": 3})
    prompt_id = await prompt(rig, session, "one")
    await answer(await node.next_call(), "uno")
    await (await follow(rig, session)).end_of(prompt_id)
    return node, session


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_a_session_goes_on_after_a_restart(
    rig: Rig, database: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(f"{database}_url")
    node, session = await with_a_turn(rig, sessions={"database": url})
    before = await look(rig, f"/session/{session}")
    await restart(rig)
    after = await look(rig, f"/session/{session}")
    assert (after["turns"], after["system"], after["maxTokens"]) == (1, "be kind", 50)
    assert after["eventEpoch"] != before["eventEpoch"]
    assert after["lastEventId"] > before["lastEventId"]
    await prompt(rig, session, "two")
    call = await node.next_call()
    assert [m["content"] for m in call.json["messages"]] == ["be kind", "one", "uno", "two"]
    assert call.json["seed"] == 3
    await answer(call)


async def test_a_reader_that_comes_back_after_a_restart_is_told_of_the_gap_and_of_every_end(
    rig: Rig,
) -> None:
    node, session = await with_a_turn(rig)
    last = (await look(rig, f"/session/{session}"))["lastEventId"]
    waiting = [await prompt(rig, session) for _ in range(2)]
    await node.next_call()
    await restart(rig)
    events = await follow(rig, session, {"last-event-id": str(last)})
    for prompt_id in waiting:
        end = await events.end_of(prompt_id)
        assert end["error"]["code"] == "shutting_down"
    assert events.seen[0]["type"] == "gap"
    assert [e["id"] for e in events.seen[1:]] == sorted(e["id"] for e in events.seen[1:])
    assert (await turn(rig, session, waiting[0]))["status"] == "failed"


async def test_a_branch_survives_a_restart_with_what_it_began_with(rig: Rig) -> None:
    _, session = await with_a_turn(rig)
    branch = (await Http(rig).branch(session)).body["sessionId"]
    await restart(rig)
    messages = (await look(rig, f"/session/{branch}/messages"))["messages"]
    assert [one["content"] for one in messages] == ["one", "uno"]


async def test_a_deleted_session_stays_deleted_after_a_restart(rig: Rig) -> None:
    _, session = await with_a_turn(rig)
    assert (await Http(rig).ask("DELETE", f"/session/{session}")).ok
    await restart(rig)
    assert (await rig.get(f"/session/{session}")).status == 404


async def test_a_gateway_without_sessions_leaves_no_file_behind(rig: Rig) -> None:
    await rig.start(await rig.node())
    assert (await rig.get("/session/ses_x")).status in (404, 200)
    await restart(rig)
    assert "forebay_sessions 0.0" in (await rig.get("/metrics")).body.decode()


async def test_a_second_gateway_on_the_same_ledger_has_no_sessions_but_serves(rig: Rig) -> None:
    node, session = await with_a_turn(rig)
    second = Gateway(rig.read_settings(), clock=rig.clock)
    await rig.stack.enter_async_context(second)
    first, rig.gateway = rig.gateway, second
    said = await Http(rig).new(model="m")
    assert (said.number, said.code) == (503, "store_unavailable")
    client, call = await rig.run(node)
    await call.answer({"choices": []})
    assert (await client.reply()).status == 200
    rig.gateway = first
    assert (await rig.get(f"/session/{session}")).status == 200


async def test_a_prompt_that_cannot_be_written_is_refused_and_not_counted(rig: Rig) -> None:
    node, session = await with_a_turn(rig)
    broken = Broken(rig)
    said = await Http(rig).prompt(session, prompt="lost?")
    assert (said.number, said.code) == (503, "store_unavailable")
    assert "retry-after" in said.headers
    assert (await Http(rig).new(model="m")).code == "store_unavailable"
    assert (await look(rig, f"/session/{session}"))["pendingCount"] == 0
    broken.mend()
    await prompt(rig, session)
    await answer(await node.next_call())
    assert len(node.calls) == 2


async def test_an_outcome_that_cannot_be_written_is_told_when_it_can_be(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    node, session = await with_a_turn(rig)
    events = await follow(rig, session)
    prompt_id = await prompt(rig, session, "two")
    call = await node.next_call()
    await asyncio.to_thread(rig.gateway.parts.sessions._ledger.flush().result)  # type: ignore[union-attr]
    broken = Broken(rig)
    await answer(call, "dos")
    assert (await events.until("text_delta", prompt_id))["text"] == "dos"
    await until_refused(rig, caplog)
    await broken.end()
    assert (await events.end_of(prompt_id))["text"] == "dos"
    await restart(rig)
    assert (await turn(rig, session, prompt_id))["text"] == "dos"


async def test_a_session_that_cannot_be_deleted_is_still_there(rig: Rig) -> None:
    _, session = await with_a_turn(rig)
    broken = Broken(rig)
    assert (await Http(rig).ask("DELETE", f"/session/{session}")).code == "store_unavailable"
    assert (await look(rig, f"/session/{session}"))["state"] == "open"
    broken.mend()
    assert (await Http(rig).ask("DELETE", f"/session/{session}")).ok


async def test_a_prompt_cancelled_as_a_request_stays_cancelled_too(rig: Rig) -> None:
    node, session = await with_a_turn(rig)
    prompt_id = await prompt(rig, session, "two")
    await node.next_call()
    broken = Broken(rig)
    said = await Http(rig).ask("DELETE", f"/v1/queue/{prompt_id}")
    assert (said.number, said.code) == (503, "store_unavailable")
    await broken.end()
    await (await follow(rig, session)).end_of(prompt_id)
    assert (await turn(rig, session, prompt_id))["status"] == "cancelled"
