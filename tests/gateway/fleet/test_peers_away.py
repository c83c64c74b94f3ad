"""A gateway that has a session and is away: said plainly, and nothing waits for ever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from forebay.gateway.fleet import peers as replicas

from ..sessions.session_steps import (
    Rpc,
    answer,
    delta,
    follow,
    new_session,
    post,
    prompt,
)
from .fleet_rig import A, B, C, two, until, until_readers

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from .fleet_rig import FleetRig


@pytest.mark.parametrize("how", ["unknown", "stopped", "nobody"])
async def test_a_gateway_that_is_away_is_503_with_a_hint_and_a_time(
    fleet: FleetRig, how: str
) -> None:
    wrong, owner, _ = await two(fleet)
    session = f"ses_{C}_{'ab' * 16}" if how == "nobody" else await new_session(owner)
    if how == "unknown":
        del fleet.directory.addresses[B]
    elif how == "stopped":
        await fleet.stop(B)
    for path in (f"/session/{session}", f"/session/{session}/events"):
        reply = await wrong.get(path)
        error = reply.json["error"]
        assert (reply.status, error["code"]) == (503, "replica_unavailable")
        assert int(reply.headers["retry-after"]) >= 1
        assert reply.headers["x-should-retry"] == "true"
        assert "coordination.advertise" in error["hint"]
        assert "127.0.0.1" not in error["message"]
    japanese = await wrong.get(f"/session/{session}", {"accept-language": "ja"})
    assert "ゲートウェイ" in japanese.json["error"]["message"]
    said = await Rpc(wrong).prompt(session, prompt="hi")
    assert (said.number, said.code) == (-32000, "replica_unavailable")


async def test_it_is_logged_once_until_the_other_is_back(
    fleet: FleetRig, caplog: pytest.LogCaptureFixture
) -> None:
    wrong, owner, node = await two(fleet)
    session = await new_session(owner)

    def logged() -> int:
        return caplog.text.count("another gateway cannot be reached")

    await fleet.stop(B)
    for _ in range(3):
        assert (await wrong.get(f"/session/{session}")).status == 503
    assert logged() == 1
    await fleet.start(B, node)
    assert (await wrong.get(f"/session/{session}")).status == 200
    await fleet.stop(B)
    assert (await wrong.get(f"/session/{session}")).status == 503
    assert logged() == 2


async def test_a_stream_is_cut_when_its_gateway_dies(fleet: FleetRig) -> None:
    wrong, owner, node = await two(fleet)
    session = await new_session(owner)
    reader = await follow(wrong, session)
    await prompt(wrong, session)
    call = await node.next_call()
    await call.start_stream()
    await call.chunk(delta("half"))
    await reader.until("text_delta")
    owner.gateway._server.abort()  # as a kill does: nothing more is said
    with pytest.raises((ConnectionError, EOFError, AssertionError)):
        await reader.to_the_end()
    assert not [event for event in reader.seen if event["type"].startswith("turn_")]


async def test_a_gateway_that_stops_lets_go_of_what_it_passes_on(fleet: FleetRig) -> None:
    wrong, owner, _ = await two(fleet)
    session = await new_session(owner)
    reader = await follow(wrong, session)
    await until_readers(owner, session, 1)
    await fleet.stop(A)
    with pytest.raises((ConnectionError, EOFError, AssertionError)):
        await reader.to_the_end()
    await until_readers(owner, session, 0)


async def test_a_gateway_that_is_lost_is_not_waited_for(
    fleet: FleetRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is frozen takes calls in and never answers them."""
    monkeypatch.setattr(replicas, "ALIVE_S", 0.01)
    wrong, owner, node = await two(fleet)
    session = await new_session(owner)
    await prompt(owner, session)
    call = await node.next_call()
    client = await wrong.client()
    await client.request("POST", f"/session/{session}/branch")  # waits for its turn
    await until(wrong, lambda: wrong.gateway.parts.peers.in_flight)
    fleet.directory.lost.add(B)
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (502, "replica_lost")
    await answer(call)


class Deaf:
    """Takes connections and questions, and hangs up on them."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.asked: list[bytes] = []

    async def start(self) -> str:
        server = await asyncio.start_server(self._hang_up, "127.0.0.1", 0)
        await self._stack.enter_async_context(server)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _hang_up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()


async def test_what_may_have_been_done_is_not_said_to_be_worth_asking_again(
    fleet: FleetRig,
) -> None:
    """A prompt that was sent to a gateway which died then may have been accepted."""
    wrong, owner, _ = await two(fleet)
    session = await new_session(owner)
    deaf = Deaf(fleet.stack)
    fleet.directory.addresses[B] = await deaf.start()
    reply = await post(wrong, f"/session/{session}/prompt", {"prompt": "hi"})
    assert (reply.status, reply.json["error"]["code"]) == (502, "replica_lost")
    assert reply.headers["x-should-retry"] == "false"
    assert "retry-after" not in reply.headers
    said = await Rpc(wrong).prompt(session, prompt="hi")
    assert (said.number, said.code) == (-32000, "replica_lost")
    assert len(deaf.asked) == 2  # once each
    looked = await wrong.get(f"/session/{session}")
    assert (looked.status, looked.json["error"]["code"]) == (503, "replica_unavailable")
