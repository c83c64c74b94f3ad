"""`retry.attempts` is what a node sees: nodes that hang up count what they received.

A connection that has been kept may end at any moment. Where it ends before anything is sent,
nothing has happened; where it ends without a byte of an answer, the node may have worked on the
request.
"""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from forebay.relay.retries import FLOOR

from ..conftest import OK, Rig
from ..jobs import job_steps
from ..sessions import session_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.testing import Call, FakeNode

REQUEST_ID = re.compile(rb"x-request-id: (\S+)\r\n")
LENGTH = re.compile(rb"content-length: (\d+)\r\n")
PROBES = {
    b"/health": b'{"status":"ok"}',
    b"/props": b'{"total_slots":1,"model_path":"m"}',
    b"/v1/models": b'{"object":"list","data":[{"id":"m","object":"model","owned_by":"llamacpp"}]}',
}


def seen_by(node: FakeNode) -> Counter[str]:
    """Count what a node has received, by request."""
    return Counter(call.headers["x-request-id"] for call in node.calls)


def hangs_up_on_the_second(node: FakeNode, *, resets: bool) -> None:
    """Have a node answer the first request of each connection, and hang up on the next."""
    answered: set[int] = set()

    async def answer(call: Call) -> None:
        if call.connection not in answered:
            answered.add(call.connection)
            await call.answer(OK)
        elif resets:
            call.reset()
        else:
            call.close()

    node.automatic = answer


async def say_nothing_failed(rig: Rig) -> None:
    metrics = (await rig.get("/metrics")).body.decode()
    assert "forebay_retries_total 0.0" in metrics
    assert "forebay_node_failures_total{" not in metrics


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("attempts", [1, 2, 3])
async def test_a_kept_connection_that_ends_without_a_byte_is_an_attempt(
    rig: Rig, attempts: int, resets: bool
) -> None:
    node = await rig.node()
    await rig.start(node, retry={"attempts": attempts})
    hangs_up_on_the_second(node, resets=resets)
    for number in range(6):
        client = await rig.ask(headers={"x-request-id": f"r{number}"})
        reply = await client.reply()
        on_a_kept_connection = number % 2 == 1 if attempts == 1 else number > 0
        wanted = 502 if on_a_kept_connection and attempts == 1 else 200
        assert reply.status == wanted, f"request {number}"
        times = 2 if on_a_kept_connection and attempts > 1 else 1
        assert seen_by(node)[f"r{number}"] == times, f"request {number}"
        if wanted == 502:
            assert reply.json["error"]["code"] == "node_failed"
            assert reply.json["error"]["attempts"] == 1
            assert reply.headers["x-forebay-node"] == "n1"
    await say_nothing_failed(rig)
    assert (await rig.get("/ready")).status == 200, "it answers, and is used"


async def test_an_attempt_on_a_kept_connection_uses_the_retry_budget(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    hangs_up_on_the_second(node, resets=False)
    statuses = [(await (await rig.ask()).reply()).status for _ in range(FLOOR + 2)]
    assert statuses == [200] * (FLOOR + 1) + [502], "ten of them may be sent again in ten seconds"
    assert sorted(seen_by(node).values()) == [1, 1, *[2] * FLOOR]
    await say_nothing_failed(rig)
    rig.clock.advance(11.0)
    assert (await (await rig.ask()).reply()).status == 200


async def test_attempts_are_counted_over_both_kinds_of_failure(rig: Rig) -> None:
    """A kept connection that ends, then a fresh one: two attempts, the second a failure."""
    node = await rig.node()
    await rig.start(node, retry={"attempts": 2})
    client, call = await rig.run(node)
    await call.answer(OK)
    await client.reply()
    client, call = await rig.run(node, headers={"x-request-id": "r"})
    call.close()
    (await node.next_call()).close()
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["attempts"]) == (502, 2)
    assert seen_by(node)["r"] == 2
    metrics = (await rig.get("/metrics")).body.decode()
    assert "forebay_retries_total 0.0" in metrics
    assert 'forebay_node_failures_total{kind="lost",node="n1"} 1.0' in metrics


async def test_once_means_once_for_a_sessions_prompt(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, retry={"attempts": 1})
    session = await session_steps.new_session(rig)
    events = await session_steps.follow(rig, session)
    hangs_up_on_the_second(node, resets=False)
    assert (await (await rig.ask()).reply()).status == 200  # its connection is kept
    ended = await events.end_of(await session_steps.prompt(rig, session))
    assert (ended["type"], ended["error"]["code"]) == ("turn_error", "node_failed")
    assert sorted(seen_by(node).values()) == [1, 1]
    await say_nothing_failed(rig)


async def test_once_means_once_for_a_job(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, retry={"attempts": 1})
    hangs_up_on_the_second(node, resets=False)
    assert (await (await rig.ask()).reply()).status == 200  # its connection is kept
    failed = await job_steps.until(rig, await job_steps.submit(rig), "failed")
    assert failed["error_code"] == "node_failed"
    assert sorted(seen_by(node).values()) == [1, 1]
    await say_nothing_failed(rig)


async def test_what_a_guards_backend_did_to_a_kept_connection_is_an_attempt_too(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, retry={"attempts": 2})
    client, call = await rig.run(node, headers={"x-request-id": "r"})
    await call.answer({"error": {}}, 502, {"x-forebay-guard": "backend_closed"})
    await (await node.next_call()).answer({"error": {}}, 502, {"x-forebay-guard": "backend_closed"})
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["attempts"]) == (502, 2)
    assert seen_by(node)["r"] == 2
    await say_nothing_failed(rig)


class Rude:
    """A server with a thread for each connection, which ends them when it likes.

    It promises to keep each connection and closes or resets it: after the answer, in the middle of
    the next request, after that, or after an answer to the one after next.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.received: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with self._lock:
            self._connections += 1
            manner = self._connections % 4
        with peer, suppress(ConnectionResetError):  # the gateway stops in the middle of a probe
            for number in range(3):
                if manner == 0 and number == 1:
                    peer.recv(10)  # and away, with the rest unread: that resets it
                    return
                request = self._read(peer)
                if request is None or (manner == 1 and number == 1):
                    return
                self._answer(peer, request)
                if manner == 2:
                    return

    def _read(self, peer: socket.socket) -> bytes | None:
        """Return a whole request, None where no more come; what is whole counts as received."""
        data = b""
        while b"\r\n\r\n" not in data:
            piece = peer.recv(65536)
            if not piece:
                return None
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        length = LENGTH.search(head + b"\r\n")
        while length is not None and len(body) < int(length[1]):
            body += peer.recv(65536)
        if found := REQUEST_ID.search(head + b"\r\n"):
            with self._lock:
                self.received[found[1].decode()] += 1
        return head

    def _answer(self, peer: socket.socket, head: bytes) -> None:
        body = PROBES.get(head.split(b" ")[1].partition(b"?")[0], b'{"choices":[]}')
        peer.sendall(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nserver: llama.cpp\r\n"
            b"connection: keep-alive\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )


@pytest.fixture
def rude() -> Iterator[Rude]:
    node = Rude()
    yield node
    node.close()


@pytest.mark.parametrize("attempts", [1, 2, 3])
async def test_no_node_sees_a_request_more_often_than_attempts_say(
    rig: Rig, rude: Rude, attempts: int
) -> None:
    nodes = [{"name": "rude", "url": rude.url, "models": ["m"], "slots": 4}]
    await rig.start(retry={"attempts": attempts, "budget": 1.0}, nodes=nodes)

    async def ask_often(name: str) -> list[int]:
        client, statuses = await rig.client(), []
        for number in range(40):
            headers = {"x-request-id": f"{name}-{number}"}
            await client.post("/v1/chat/completions", {"model": "m", "messages": []}, headers)
            statuses.append((await client.reply()).status)
        return statuses

    told = await asyncio.gather(*(ask_often(name) for name in "abcd"))
    statuses = [status for one in told for status in one]
    assert set(statuses) <= {200, 502}
    asked = [count for name, count in rude.received.items() if name[1:2] == "-"]
    assert max(asked) <= attempts
    assert statuses.count(200) <= len(asked)


async def test_a_node_that_is_busy_again_and_again_is_cut_to_one_slot(rig: Rig) -> None:
    node = await rig.node(slots=6)
    gateway = await rig.start(node, nodes=[{"name": "n1", "url": node.url, "slots": 6}])
    backend = gateway.parts.nodes.get("n1")
    assert backend is not None
    told = []
    for _ in range(7):
        backend.busy("m")
        backend._tell(backend.health.changed(rig.clock.monotonic_s()))
        told.append(backend.told.slots)
    assert told == [5, 4, 3, 2, 1, 1, 1]


async def test_busy_answers_use_up_no_attempts(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, retry={"attempts": 2})
    client = await rig.ask()
    for _ in range(2):
        await (await node.next_call()).answer({}, status=429)
        await rig.wait_until("waiting", 1)
        rig.clock.advance(2.0)
    (await node.next_call()).reset()
    again = asyncio.ensure_future(node.next_call())
    while not again.done():  # once a probe has found the node well
        rig.clock.advance(0.5)
        await rig.queue()
    await again.result().answer(OK)
    assert (await client.reply()).status == 200
