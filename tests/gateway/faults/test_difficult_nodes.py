"""Rows 27-32, 35 and 36: nodes that are full, endless, flapping, gone, half broken or slow."""

from __future__ import annotations

import gzip
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from forebay.nodes.health import TOGETHER_S

from .conftest import EVENT

if TYPE_CHECKING:
    from forebay.nodes.backend import Backend
    from forebay.testing import FakeNode, Reply
    from forebay.testing.fake_node import Call

    from .conftest import FaultRig


def code(reply: Reply) -> str:
    return str(reply.json["error"]["code"])


async def settle(rig: FaultRig, backend: Backend) -> None:
    """Let a probe that is under way end."""
    await rig.until(lambda: backend._probing is None, "a probe does not end")


async def test_fault_27_a_node_that_says_it_is_full_rests_and_the_request_keeps_its_place(
    rig: FaultRig,
) -> None:
    node = await rig.node(slots=3)
    await rig.start(node)
    await rig.ask(mark="runs")
    await node.next_call()
    first = await rig.ask(mark="first")
    busy = await node.next_call()
    await busy.answer({"error": "busy"}, status=429, headers={"retry-after": "5"})
    await rig.wait_until("waiting", 1)
    await rig.ask(mark="second")
    await rig.wait_until("waiting", 2)
    assert await rig.metric('forebay_node_slots{node="n1"}') == 2
    rig.clock.advance(4.9)
    await rig.wait_until("waiting", 2)
    assert len(node.calls) == 2
    rig.clock.advance(0.1)
    again = await node.next_call()
    assert again.json["mark"] == "first"  # and only one: a slot has been cut
    await rig.wait_until("waiting", 1)
    await again.answer({})
    reply = await first.reply()
    assert (reply.status, reply.headers["x-queue-status"]) == (200, "queued")
    assert reply.headers["x-queue-wait-ms"] == "5000"
    assert "forebay_node_failures_total{" not in (await rig.get("/metrics")).body.decode()
    assert await rig.metric("forebay_retries_total") == 0


async def test_fault_27_a_node_that_has_not_noticed_a_cancellation_keeps_its_slots(
    rig: FaultRig,
) -> None:
    node = await rig.node(slots=2)
    gateway = await rig.start(node)
    leaves = await rig.ask(mark="leaves")
    await node.next_call()
    await rig.ask(mark="runs")
    runs = await node.next_call()
    await rig.ask(mark="next")
    await rig.wait_until("waiting", 1)
    leaves.close()
    too_soon = await node.next_call()
    await too_soon.answer({"error": "busy"}, status=503, headers={"retry-after": "1"})
    await rig.wait_until("waiting", 1)
    assert await rig.metric('forebay_node_slots{node="n1"}') == 2
    backend = gateway.parts.nodes.get("n1")
    assert backend is not None
    backend._tell(backend.health.changed(rig.clock.monotonic_s()))  # as after the next probe
    rig.clock.advance(1.0)
    again = await node.next_call()  # beside the one that runs
    assert again.json["mark"] == "next"
    await again.answer({})
    await runs.answer({})


@pytest.mark.parametrize(("retry_after", "rest_s"), [("", 1.0), ("9999999", 60.0), ("soon", 1.0)])
async def test_fault_27_a_busy_node_rests_a_second_or_what_it_says_within_reason(
    rig: FaultRig, retry_after: str, rest_s: float
) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_wait_seconds": 100.0})
    await rig.ask(mark="x")
    headers = {"retry-after": retry_after} if retry_after else {}
    await (await node.next_call()).answer({}, status=503, headers=headers)
    await rig.wait_until("waiting", 1)
    rig.clock.advance(rest_s - 0.1)
    await rig.wait_until("waiting", 1)
    rig.clock.advance(0.1)
    await rig.wait_until("processing", 1)
    await node.next_call()


async def test_fault_27_a_stream_that_was_turned_away_is_kept_informed_like_any_that_waits(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask(stream=True)
    await (await node.next_call()).answer({}, status=429, headers={"retry-after": "20"})
    await rig.wait_until("waiting", 1)
    rig.clock.advance(15.0)
    await rig.wait_until("waiting", 1)
    assert (await client.head()).status == 200
    assert (await client.chunk() or b"").startswith(b": queued position=1")
    rig.clock.advance(5.0)
    call = await node.next_call()
    assert await client.chunk() == b": started node=n1 waited_ms=20000\n\n"
    await call.start_stream()
    await call.chunk(EVENT)
    assert await client.chunk() == EVENT


async def test_fault_28_an_endless_stream_is_cut_off_at_the_bound_on_bytes(rig: FaultRig) -> None:
    node = await rig.node()

    async def endless(call: Call) -> None:
        await call.start_stream()
        with suppress(ConnectionResetError):
            for _ in range(20_000):
                await call.chunk(EVENT)

    node.automatic = endless
    await rig.start(node, queue={"answer_max_bytes": 100_000})
    body = (await (await rig.ask(stream=True)).reply()).body
    assert 99_000 <= len(body) <= 101_000
    assert b"answer_max_bytes" in body[-400:]
    assert b"[DONE]" not in body
    await node.calls[0].gone()


async def test_fault_28_an_endless_unary_answer_is_cut_off_at_the_bound_on_bytes(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    await rig.start(node, queue={"answer_max_bytes": 100_000}, retry={"attempts": 1})
    client = await rig.ask()
    call = await node.next_call()
    with suppress(ConnectionResetError):
        await call.write(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n{")
        for _ in range(1000):
            await call.write(b" " * 10_000)
    reply = await client.reply()
    assert (reply.status, code(reply)) == (502, "node_failed")
    await call.gone()


async def test_fault_28_a_stream_that_never_ends_has_its_time_and_no_more(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask(stream=True)
    call = await node.next_call()
    await call.start_stream()
    for number in range(20):
        await call.chunk(EVENT)
        if not number:
            await client.head()
        assert await client.chunk() == EVENT
        rig.clock.advance(30.0)
    assert b'"run_timeout"' in (await client.chunk() or b"")
    assert await client.chunk() is None
    await call.gone()


async def test_fault_29_a_line_without_end_is_passed_on_in_pieces_and_capped(rig: FaultRig) -> None:
    node = await rig.node()

    async def one_line(call: Call) -> None:
        await call.start_stream()
        with suppress(ConnectionResetError):
            await call.chunk(b"data: ")
            for _ in range(1000):
                await call.chunk(b"x" * 60_000)

    node.automatic = one_line
    await rig.start(node, queue={"answer_max_bytes": 5_000_000})
    body = (await (await rig.ask(stream=True)).reply()).body
    assert len(body) < 5_100_000
    assert b'"node_failed"' in body[-400:]


@pytest.mark.parametrize("stream", [False, True])
async def test_fault_29_a_compressed_answer_that_nobody_asked_for_is_never_unpacked(
    rig: FaultRig, stream: bool
) -> None:
    node = await rig.node()
    await rig.start(node, retry={"attempts": 1})
    client = await rig.ask(stream=stream, headers={"accept-encoding": "gzip, br"})
    call = await node.next_call()
    assert call.headers["accept-encoding"] == "identity"
    bomb = gzip.compress(b"\0" * 20_000_000)
    await call.answer(bomb, headers={"content-encoding": "gzip"})
    reply = await client.reply()
    assert (reply.status, code(reply)) == (502, "node_failed")


LARGE = b"x-big: " + b"x" * 2_000_000
END = b"\r\ncontent-length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    "head",
    [LARGE + END, b"a: b\r\n" * 20_000 + END, LARGE],
    ids=["a long one", "many", "without end"],
)
async def test_fault_29_an_answer_with_a_gigantic_head_is_refused(
    rig: FaultRig, head: bytes
) -> None:
    node = await rig.node()
    await rig.start(node, retry={"attempts": 1})
    client = await rig.ask()
    call = await node.next_call()
    with suppress(ConnectionResetError):
        await call.write(b"HTTP/1.1 200 OK\r\n" + head)
    reply = await client.reply()
    assert (reply.status, code(reply)) == (502, "node_failed")


async def test_fault_29_a_gigantic_answer_to_a_probe_is_refused(rig: FaultRig) -> None:
    node = await rig.node(models=[f"{number:0500}" for number in range(40_000)], kind="openai")
    gateway = await rig.start(node)
    (backend,) = gateway.parts.nodes
    assert backend.told.state == "offline"
    assert "too large" in backend.last_error


async def test_fault_30_a_node_that_comes_back_is_tried_with_one_request_first(
    rig: FaultRig,
) -> None:
    node = await rig.node(slots=4)
    gateway = await rig.start(node, retry={"attempts": 1}, queue={"offline_wait_seconds": 0})
    (backend,) = gateway.parts.nodes
    for pause_s in (0.0, TOGETHER_S):
        rig.clock.advance(pause_s)
        await settle(rig, backend)
        client = await rig.ask()
        (await node.next_call()).reset()
        assert (await client.reply()).status == 502
    assert backend.told.state == "offline"
    assert code(await (await rig.ask()).reply()) == "no_node"
    rig.clock.advance(1.0)
    await settle(rig, backend)
    assert backend.health.phase == "half_open"
    clients = [await rig.ask(mark=number) for number in range(3)]
    await rig.wait_until("waiting", 2)
    call = await node.next_call()
    await call.answer({})
    for _ in range(2):  # it is well: now all at once
        call = await node.next_call()
    assert node.running == 2
    assert (await clients[0].reply()).status == 200


async def test_fault_30_a_node_that_flaps_every_two_seconds_is_left_alone_more_and_more(
    rig: FaultRig,
) -> None:
    node, steady = await rig.node(models=["m", "flap"]), await rig.node()
    gateway = await rig.start(node, steady)
    backend = next(iter(gateway.parts.nodes))
    states, probes = [], node.probes
    for second in range(120):
        node.health = "ok" if second % 4 < 2 else "error"
        rig.clock.advance(1.0)
        await settle(rig, backend)
        states.append(backend.told.state)
    changes = [a != b for a, b in pairwise(states)]
    assert sum(changes) <= 14  # sixty, if it were believed each time
    assert sum(changes[60:]) <= 6
    assert (node.probes - probes) / 3 <= 60  # three questions each
    client = await rig.ask()  # and the other node never suffered
    serving: FakeNode = steady if not node.calls else node
    await (await serving.next_call()).answer({})
    assert (await client.reply()).status == 200


async def test_fault_31_a_model_without_nodes_is_refused_while_others_are_served(
    rig: FaultRig,
) -> None:
    dead, alive = await rig.node(models=["a"]), await rig.node(models=["b"])
    gateway = await rig.start(dead, alive, retry={"attempts": 3})
    await rig.ask("a", mark="runs")
    running = await dead.next_call()
    waiter = await rig.ask("a")
    await rig.wait_until("waiting", 1)
    dead.health = "error"
    await dead.stop_listening()
    running.reset()
    await rig.wait_until("waiting", 2)
    backend = next(iter(gateway.parts.nodes))
    for _ in range(3):
        rig.clock.advance(1.0)
        await settle(rig, backend)
    assert backend.told.state == "offline"
    rig.clock.advance(30.0)  # gone for longer than a restart takes
    refused = await (await rig.ask("a")).reply()
    assert (refused.status, code(refused)) == (503, "no_node")
    assert refused.headers["retry-after"]
    await rig.wait_until("waiting", 2)  # who was there before keeps waiting
    served = await rig.ask("b")
    await (await alive.next_call()).answer({})
    assert (await served.reply()).status == 200
    assert (await rig.get("/ready")).status == 200
    rig.clock.advance(30.0)
    reply = await waiter.reply()
    assert (reply.status, code(reply)) == (503, "no_node")


async def test_fault_31_who_waits_for_a_dead_node_runs_when_it_is_back(rig: FaultRig) -> None:
    node = await rig.node()
    gateway = await rig.start(node)
    (backend,) = gateway.parts.nodes
    client = await rig.ask()
    call = await node.next_call()
    await node.stop_listening()
    call.reset()
    await rig.wait_until("waiting", 1)
    rig.clock.advance(3.0)
    await settle(rig, backend)
    assert backend.told.state == "offline"
    await node.listen()
    rig.clock.advance(10.0)
    await (await node.next_call()).answer({})
    assert (await client.reply()).status == 200


async def test_fault_32_a_model_that_no_node_has_is_404_at_once_even_when_all_are_busy(
    rig: FaultRig,
) -> None:
    node = await rig.node(models=["m"])
    await rig.start(node, queue={"max_size": 1})
    await rig.ask()
    await node.next_call()
    await rig.ask()
    await rig.wait_until("waiting", 1)
    for stream in (False, True):
        reply = await (await rig.ask("missing", stream=stream)).reply()
        assert (reply.status, code(reply)) == (404, "model_not_found")
        assert reply.json["error"]["param"] == "model"
        assert reply.headers["x-should-retry"] == "false"
    reply = await (await rig.ask("m", path="/api/chat")).reply()
    assert (reply.status, reply.json["code"]) == (404, "route_not_supported")
    assert (await rig.queue())["waiting"] == 1


async def test_fault_35_a_model_that_cannot_be_loaded_rests_while_the_others_go_on(
    rig: FaultRig,
) -> None:
    node = await rig.node(models=["big", "small"])

    async def out_of_memory(call: Call) -> None:
        if call.json["model"] == "big":
            await call.answer({"error": "CUDA out of memory"}, status=500)
        else:
            await call.answer({})

    node.automatic = out_of_memory
    gateway = await rig.start(node, retry={"attempts": 1})
    (backend,) = gateway.parts.nodes
    for user in "xyxyx":
        reply = await (await rig.ask("big", user=user)).reply()
        assert (reply.status, reply.json["error"]) == (500, "CUDA out of memory")
        assert (await (await rig.ask("small")).reply()).status == 200
    waiters = [await rig.ask("big", user=user) for user in "xyxyx"]
    await rig.wait_until("waiting", 5)
    for left, rest_s in zip(
        (4, 3, 2, 1, 0), (1.0, 2.0, 4.0, 5.0, 5.0), strict=True
    ):  # each failure doubles the rest
        rig.clock.advance(rest_s - 0.1)
        await settle(rig, backend)
        assert (await (await rig.ask("small")).reply()).status == 200
        await rig.wait_until("waiting", left + 1)
        rig.clock.advance(0.1)
        await rig.wait_until("waiting", left)  # one at a time, and it fails again
        await rig.wait_until("processing", 0)
    assert {(await waiter.reply()).status for waiter in waiters} == {500}
    assert backend.told.state == "online"


async def test_fault_36_requests_go_where_they_run_fastest(rig: FaultRig) -> None:
    fast, slow = await rig.node(slots=4), await rig.node(slots=4)

    async def at_once(call: Call) -> None:
        await call.answer({})

    fast.automatic = at_once  # the other takes ten times as long and more
    await rig.start(fast, slow)
    for _ in range(20):
        await rig.ask()
        await rig.queue()
    assert len(slow.calls) <= 2
    assert len(fast.calls) >= 18


async def test_fault_36_the_estimate_follows_a_node_that_becomes_ten_times_slower(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_wait_seconds": 1000.0})

    async def estimate() -> int:
        """Return what the third in line is told, and let all three run."""
        clients = []
        for count in range(3):
            clients.append(await rig.ask())
            await rig.wait_until("waiting", max(0, count))
        for _ in clients:
            call = await node.next_call()
            rig.clock.advance(service_s)
            await call.answer({})
            await rig.queue()
        replies = [await client.reply() for client in clients]
        return int(replies[2].headers.get("x-estimated-wait", "0"))

    service_s = 1.0
    await estimate()
    assert await estimate() == 1
    service_s = 10.0
    seen = [await estimate() for _ in range(40)]
    assert seen == sorted(seen)
    assert seen[-1] == 10
