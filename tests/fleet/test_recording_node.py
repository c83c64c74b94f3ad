"""The node of the fault trials says the truth about what ran beside what."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING

import pytest

from harness.fleet.journal import Journal
from harness.fleet.recording_node import RecordingNode, prompt_for
from harness.fleet.slot_checks import Overcommit, overcommits, run_twice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.fleet.recording_node import Running

LONG_S = 3600.0


def connection_to(node: RecordingNode) -> socket.socket:
    """Return a plain socket, so that the loop may meet two of its moves in one turn."""
    return socket.create_connection(("127.0.0.1", node.port))


def request(id: str) -> bytes:
    message = {"role": "user", "content": prompt_for(id, LONG_S)}
    body = json.dumps({"model": "m", "messages": [message]}).encode()
    return b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def send_after_hanging_up(first: socket.socket, second: socket.socket, what: bytes) -> None:
    """End the first and send on the second, whose bytes the loop meets before that end."""
    second.sendall(what[:10])
    first.close()
    second.sendall(what[10:])


async def runs_at(node: RecordingNode, count: int) -> None:
    async with asyncio.timeout(10):
        while len(node.runs) < count:  # noqa: ASYNC110 - what is looked at sets no event
            await asyncio.sleep(0)


def journal_of(*nodes: RecordingNode) -> Journal:
    runs = [run for node in nodes for run in node.runs]
    return Journal(runs, [], {node.name: node.slots for node in nodes}, LONG_S * 1e6)


@pytest.fixture
def precise() -> Iterator[asyncio.Runner]:
    """A loop whose time is no multiple of a millisecond, so that no two moments are one."""
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        yield runner


def test_a_hang_up_before_the_next_request_is_no_over_commit(precise: asyncio.Runner) -> None:
    async def hang_up_and_go_on() -> None:
        async with RecordingNode("a", 1, []) as node:
            with connection_to(node) as first, connection_to(node) as second:
                first.sendall(request("1"))
                await runs_at(node, 1)
                send_after_hanging_up(first, second, request("2"))
                await runs_at(node, 2)
                assert [run.outcome for run in node.runs] == ["hung_up", "running"]
                assert overcommits(journal_of(node)) == []

    precise.run(hang_up_and_go_on())


def test_a_hang_up_before_the_request_goes_to_another_node_is_no_second_run(
    precise: asyncio.Runner,
) -> None:
    async def try_again_elsewhere() -> None:
        running: Running = []
        async with RecordingNode("a", 1, running) as a, RecordingNode("b", 1, running) as b:
            with connection_to(a) as first, connection_to(b) as second:
                first.sendall(request("1"))
                await runs_at(a, 1)
                send_after_hanging_up(first, second, request("1"))
                await runs_at(b, 1)
                assert run_twice(journal_of(a, b)) == []

    precise.run(try_again_elsewhere())


async def test_two_that_are_both_there_are_an_over_commit() -> None:
    async with RecordingNode("a", 1, []) as node:
        with connection_to(node) as first, connection_to(node) as second:
            first.sendall(request("1"))
            await runs_at(node, 1)
            second.sendall(request("2"))
            await runs_at(node, 2)
            (found,) = overcommits(journal_of(node))
            assert found == Overcommit("a", node.runs[1].began_s, LONG_S * 1e6, 1)
