"""Two gateways as programs of their own, on one PostgreSQL; the client asks the wrong one."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay.sdk import AsyncSessionClient, Busy, TurnFailed
from forebay.testing import RawClient
from harness.preloaded import PipedProgram

from .conftest import piece, say, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.sdk import SessionEvent
    from forebay.testing import FakeNode

    from .conftest import Place

CHILD = Path(__file__).with_name("replica_child.py")
A, B = "aaaaaaaa", "bbbbbbbb"
LIMIT_S = 60.0  # only turns a hang into a failure


class Programs:
    """The gateways, by name; each comes back where it was."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._running: dict[str, PipedProgram] = {}
        self.urls = {name: f"http://127.0.0.1:{free_port()}" for name in (A, B)}

    async def start(self, name: str, node: FakeNode) -> None:
        port = self.urls[name].rpartition(":")[2]
        places = json.dumps(self.urls)
        child = PipedProgram(CHILD, name, port, self._database, node.url, places)
        self._running[name] = child
        async with asyncio.timeout(LIMIT_S):
            assert await asyncio.to_thread(child.stdout.readline) == "ready\n"

    def kill(self, name: str) -> None:
        """As `kill -9` does."""
        child = self._running.pop(name)
        child.kill()
        child.communicate()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def programs(postgres_url: str) -> Iterator[Programs]:
    made = Programs(postgres_url)
    yield made
    for name in list(made._running):
        made.kill(name)


async def test_prompts_end_once_when_their_gateway_is_killed_in_mid_stream_behind_another(
    place: Place, programs: Programs
) -> None:
    node = await place.node(slots=4)
    for name in (A, B):
        await programs.start(name, node)
    here = await place.client(programs.urls[A], pace=None)
    there = await place.client(programs.urls[B], pace=None)
    async with asyncio.timeout(LIMIT_S):
        made = await AsyncSessionClient.create_or_attach(there, model="m")
        own = await AsyncSessionClient.create_or_attach(here, model="m")
        assert (made.session_id[4:12], own.session_id[4:12]) == (B, A)
        session = await AsyncSessionClient.load(here, made.session_id)  # asks the wrong one
        heard: list[SessionEvent] = []
        first = await session.send("one")
        following = asyncio.ensure_future(first.finish_with(heard.append))
        call = await node.next_call()
        second = await session.send("two")
        await call.start_stream()
        await call.chunk(piece("half"))
        await until(lambda: any(event.type == "text_delta" for event in heard))

        programs.kill(B)
        impatient = await place.client(programs.urls[A], pace=None, retries=0)
        with pytest.raises(Busy) as away:
            await AsyncSessionClient.load(impatient, made.session_id)
        assert away.value.code == "replica_unavailable"
        # Whoever lives on the other one notices nothing.
        mine = asyncio.ensure_future(own.prompt("mine"))
        await say(await node.next_call(), "yours")
        assert (await mine).text == "yours"

        await programs.start(B, node)
        with pytest.raises(TurnFailed) as failed:
            await following
        assert failed.value.code == "outcome_unknown"
        await say(await node.next_call(), "again")  # what waited goes on
        assert (await second.result()).text == "again"
        assert [one["content"] for one in await session.messages()] == ["two", "again"]
        ends = await ends_of(programs.urls[A], session)
        assert ends == [(first.prompt_id, "outcome_unknown"), (second.prompt_id, "")]


async def ends_of(url: str, session: AsyncSessionClient) -> list[tuple[str, str]]:
    """Close a session; return how each of its prompts ended, from all events that there were."""
    client = await RawClient.connect("127.0.0.1", int(url.rpartition(":")[2]))
    async with client:
        path = f"/session/{session.session_id}/events"
        await client.get(path, {"Last-Event-ID": "1"})
        assert (await client.head()).status == 200
        await session.close(delete=True)
        raw = b""
        while (piece := await client.chunk()) is not None:
            raw += piece
    lines = [line[6:] for line in raw.split(b"\n") if line.startswith(b"data: ")]
    events = [json.loads(line) for line in lines]
    assert events[-1]["type"] == "session_closed"
    return [
        (event["promptId"], (event.get("error") or {}).get("code", ""))
        for event in events
        if event["type"] in ("turn_complete", "turn_error")
    ]
