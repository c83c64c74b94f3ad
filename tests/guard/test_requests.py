"""What is not inference: looking at the backend, the guard's own status, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay import __version__
from forebay.guard.proxy import PROBES_MAX, STATUS
from forebay.guard.requests import RequestClassifier
from forebay.nodes.gpu import GpuReading
from forebay.wire.heads import RequestHead
from forebay.wire.hosts import HostGuard

from .conftest import CHAT, OK, TOKEN

if TYPE_CHECKING:
    from .conftest import GuardRig


async def test_lists_pass_while_every_slot_is_taken_and_are_not_counted(rig: GuardRig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask()
    call = await node.next_call()
    assert [one["id"] for one in (await rig.get("/v1/models")).json["data"]] == ["m"]
    assert (await rig.get("/props")).json["total_slots"] == 1
    assert (await rig.get("/no/such/page")).status == 404
    assert (await rig.status())["in_flight"] == 1
    await call.answer(OK)
    await client.reply()


async def test_the_status_says_what_the_node_is_doing(rig: GuardRig) -> None:
    rig.gpu = GpuReading(0.25, 3, 8)
    node = await rig.node(models=("a", "b"), slots=2)
    await rig.start(node, name="gpu1")
    idle = await rig.status()
    assert (idle["state"], idle["slots"], idle["in_flight"]) == ("idle", 2, 0)
    assert (idle["gpu_load"], idle["vram_used_bytes"], idle["vram_total_bytes"]) == (0.25, 3, 8)
    assert (idle["kind"], idle["models"], idle["name"]) == ("llama-cpp", ["a", "b"], "gpu1")
    assert idle["version"] == __version__
    client = await rig.ask()
    call = await node.next_call()
    busy = await rig.status()
    assert (busy["state"], busy["in_flight"]) == ("busy", 1)
    await call.answer(OK)
    await client.reply()
    assert (await rig.status())["state"] == "idle"


async def test_a_backend_that_loads_or_is_gone_is_told_as_such(rig: GuardRig) -> None:
    node = await rig.node()
    await rig.start(node)
    node.health = "loading"
    rig.clock.advance(10.0)
    await rig.until("state", "loading")
    node.health = "ok"
    rig.clock.advance(1.0)
    await rig.until("state", "idle")
    node.health = "error"
    for _ in range(100):
        rig.clock.advance(1.0)
        if (await rig.status())["state"] == "offline":
            break
    assert (await rig.status())["state"] == "offline"
    assert (await rig.status())["last_error"]


async def test_probes_are_bounded(rig: GuardRig) -> None:
    node = await rig.node()
    await rig.start(node)
    node.health = "hang"
    waiting = [await rig.client() for _ in range(PROBES_MAX)]
    for client in waiting:
        await client.get("/v1/models")
    while rig.guard._proxy.probes.in_flight < PROBES_MAX:
        await rig.status()
    reply = await rig.get("/v1/models")
    assert (reply.status, reply.json["error"]["code"]) == (503, "too_many_probes")
    rig.clock.advance(10.0)
    assert {(await client.reply()).status for client in waiting} == {504}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/api/pull", 404),
        ("POST", "/v1/chat/completions/", 404),
        ("POST", "//v1/chat/completions", 404),
        ("POST", "/v1/chat%2Fcompletions", 404),
        ("POST", "/guard/status", 404),
        ("DELETE", "/api/delete", 405),
        ("OPTIONS", CHAT, 405),
    ],
)
async def test_what_could_run_beside_the_slots_is_not_passed_on(
    rig: GuardRig, method: str, path: str, status: int
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    await client.request(method, path, b"{}")
    assert (await client.reply()).status == status
    assert node.calls == []


async def test_without_the_token_nothing_is_answered_and_it_goes_no_further(rig: GuardRig) -> None:
    node = await rig.node()
    await rig.start(node, token=TOKEN)
    for headers in ({}, {"X-Forebay-Guard-Token": "x"}, {"Authorization": "Bearer x"}):
        for path in ("/guard/status", "/v1/models"):
            reply = await rig.get(path, headers)
            assert (reply.status, reply.json["error"]["code"]) == (401, "unauthorized")
    for headers in ({"X-Forebay-Guard-Token": TOKEN}, {"Authorization": f"Bearer {TOKEN}"}):
        rig.headers = headers
        client = await rig.ask()
        call = await node.next_call()
        assert TOKEN not in call.raw_head.decode()
        await call.answer(OK)
        await client.reply()


async def test_with_a_token_of_its_own_the_guard_leaves_a_caller_s_key_alone(rig: GuardRig) -> None:
    node = await rig.node()
    await rig.start(node, token=TOKEN)
    rig.headers = {"X-Forebay-Guard-Token": TOKEN, "Authorization": "Bearer for-the-backend"}
    client = await rig.ask()
    call = await node.next_call()
    assert call.headers["authorization"] == "Bearer for-the-backend"
    await call.answer(OK)
    await client.reply()


async def test_the_backend_s_key_is_added_and_comes_before_any_other(rig: GuardRig) -> None:
    node = await rig.node()
    await rig.start(node, api_key="k3y")
    rig.headers = {"Authorization": "Bearer other"}
    client = await rig.ask()
    call = await node.next_call()
    assert [value for name, value in call.raw_headers if name.lower() == "authorization"] == [
        "Bearer k3y"
    ]
    await call.answer(OK)
    await client.reply()


@pytest.mark.parametrize("headers", [{"Host": "evil.test"}, {"Origin": "http://evil.test"}])
async def test_pages_of_other_sites_are_kept_out(rig: GuardRig, headers: dict[str, str]) -> None:
    await rig.start(await rig.node())
    reply = await rig.get("/guard/status", headers)
    assert (reply.status, reply.json["error"]["code"]) == (403, "forbidden_host")


async def test_a_guard_behind_a_proxy_answers_to_the_name_that_it_is_advertised_by(
    rig: GuardRig,
) -> None:
    await rig.start(await rig.node(), advertise="https://gpu1.test")
    for host, status in (("gpu1.test", 200), ("localhost", 200), ("evil.test", 403)):
        assert (await rig.get("/guard/status", {"Host": host})).status == status


async def test_rubbish_is_refused_in_words(rig: GuardRig) -> None:
    await rig.start(await rig.node())
    client = await rig.client()
    await client.send(b"NONSENSE\r\n\r\n")
    assert (await client.reply()).status == 400


async def test_http_1_0_is_answered_and_closed(rig: GuardRig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    await client.send(b"POST /api/chat HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}")
    call = await node.next_call()
    await call.start_stream({"content-type": "application/x-ndjson"})
    await call.chunk(b"{}\n")
    await call.end()
    said = await client.closed()
    assert said.endswith(b"\r\n\r\n{}\n")
    assert b"chunked" not in said


async def test_an_answer_without_a_body_ends_with_its_head(rig: GuardRig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    await client.post(CHAT, {"model": "m"})
    call = await node.next_call()
    await call.write(b"HTTP/1.1 204 No Content\r\n\r\n")
    reply = await client.head()
    assert reply.status == 204
    assert "transfer-encoding" not in reply.headers
    await rig.until("in_flight", 0)


def test_every_refusal_of_the_reader_has_a_status() -> None:
    reader = RequestClassifier(HostGuard("127.0.0.1", (), ()), "t", "b:1", "")
    for method, headers in (
        (b"GET", [(b"host", b"evil.test")]),
        (b"GET", [(b"host", b"localhost")]),
        (b"PUT", [(b"host", b"localhost"), (b"x-forebay-guard-token", b"t")]),
        (b"POST", [(b"host", b"localhost"), (b"x-forebay-guard-token", b"t")]),
    ):
        asked = reader.classify(RequestHead(method, b"/x", headers))
        assert asked.refusal is not None
        assert asked.refusal.code in STATUS
