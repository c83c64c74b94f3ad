"""Heartbeats: what follows from how a gateway takes them, and what is logged about it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from forebay.guard.guard import Guard, GuardOptions
from forebay.guard.heartbeat import AGAIN_S_MAX, HEARTBEAT_S, RegistrationState
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode

from .conftest import TOKEN, TURNS

if TYPE_CHECKING:
    import pytest

    from .conftest import GuardRig


def test_a_gateway_that_is_away_costs_a_line_when_it_goes_and_one_when_it_is_back() -> None:
    episode = RegistrationState()
    lines = [episode.record(said).line for said in ("", "", "gone", "gone", "gone", "", "")]
    assert lines == ["registered", "", "not registered: gone", "", "", "registered", ""]


def test_another_reason_is_told_and_the_same_one_is_not() -> None:
    episode = RegistrationState()
    lines = [episode.record(said).line for said in ("gone", "gone", "403", "403")]
    assert lines == ["not registered: gone", "", "not registered: 403", ""]


@given(st.lists(st.sampled_from(["", "gone", "403"]), max_size=60))
def test_the_next_heartbeat_is_never_far_away_nor_too_soon(outcomes: list[str]) -> None:
    episode = RegistrationState()
    for complaint in outcomes:
        following = episode.record(complaint)
        assert HEARTBEAT_S <= following.delay_s <= AGAIN_S_MAX
        if not complaint:
            assert following.delay_s == HEARTBEAT_S
        assert episode.registered == (not complaint)


async def test_a_server_that_is_no_gateway_is_complained_about_once(
    rig: GuardRig, caplog: pytest.LogCaptureFixture
) -> None:
    other, node = await rig.node(), await rig.node()

    async def refuse(call: object) -> None:
        await call.answer({"error": "?"}, 404)  # type: ignore[attr-defined] # a Call

    other.automatic = refuse
    with caplog.at_level(logging.INFO, "forebay.guard"):
        await rig.start(node, gateways=(other.url,), token=TOKEN)
        rig.headers = {"X-Forebay-Guard-Token": TOKEN}
        for _ in range(TURNS):
            if len(other.calls) >= 3:
                break
            rig.clock.advance(1.0)
            await rig.status()
    lines = [record.message for record in caplog.records if "registered" in record.message]
    assert lines == ["not registered: it answered 404: is this a Forebay gateway?"]
    assert len(other.calls) >= 3
    (told,) = (await rig.status())["gateways"]
    assert (told["registered"], told["url"]) == (False, other.url)
    assert "404" in told["error"]


async def test_a_backend_that_tells_of_its_gpu_is_not_asked_and_told_of_in_a_circle(
    rig: GuardRig,
) -> None:
    gateway = await rig.node()

    async def take(call: object) -> None:
        await call.answer({})  # type: ignore[attr-defined] # a Call

    gateway.automatic = take
    sim = SimNode(SimOptions(models=("m@1",), vram_gb=8.0))
    await sim.start()
    rig.stack.push_async_callback(sim.stop)
    rig.guard = Guard(
        GuardOptions(backend=sim.url, port=0, gateways=(gateway.url,), token=TOKEN), rig.clock
    )
    await rig.stack.enter_async_context(rig.guard)
    rig.headers = {"X-Forebay-Guard-Token": TOKEN}
    for _ in range(100):
        status = await rig.status()
    assert status["vram_total_bytes"] == 8 << 30
    assert len(gateway.calls) <= 2
    rig.clock.advance(2.0)
    for _ in range(100):
        await rig.status()
    assert len(gateway.calls) <= 3


async def test_a_guard_that_nobody_takes_in_still_guards_and_stops(rig: GuardRig) -> None:
    gateway, node = await rig.node(), await rig.node()
    await gateway.stop_listening()
    guard = await rig.start(node, gateways=(gateway.url,), token=TOKEN)
    rig.headers = {"X-Forebay-Guard-Token": TOKEN}
    client = await rig.ask()
    await (await node.next_call()).answer({})
    assert (await client.reply()).status == 200
    await guard.stop()
    await guard.stop()


async def test_a_heartbeat_has_the_room_in_the_cache_where_the_backend_tells(rig: GuardRig) -> None:
    node = await rig.node()
    node.kv_free_tokens = 5000
    guard = await rig.start(node)
    assert (await guard.heartbeat()).kv_free_tokens == 5000
    assert (await rig.get("/guard/status")).json["kv_free_tokens"] == 5000
    node.kv_free_tokens = 0
    assert (await guard.heartbeat()).kv_free_tokens == 0
    node.health = "error"
    assert (await guard.heartbeat()).kv_free_tokens is None


async def test_a_backend_that_does_not_tell_is_asked_again_a_minute_later(rig: GuardRig) -> None:
    node = await rig.node()
    guard = await rig.start(node)

    def asked() -> int:
        return sum(request.path == "/health" for request in node.probe_requests)

    before = asked()
    for _ in range(3):
        assert (await guard.heartbeat()).kv_free_tokens is None
    assert asked() == before + 1
    node.kv_free_tokens = 7
    rig.clock.advance(60.0)
    assert (await guard.heartbeat()).kv_free_tokens == 7


async def test_gateways_hear_soon_of_the_room_that_a_request_has_left_and_once(
    rig: GuardRig,
) -> None:
    gateway, node = await rig.node(), await rig.node(slots=2)

    async def take(call: object) -> None:
        await call.answer({})  # type: ignore[attr-defined] # a Call

    gateway.automatic = take
    node.kv_free_tokens = 100
    await rig.start(node, gateways=(gateway.url,), token=TOKEN)
    rig.headers = {"X-Forebay-Guard-Token": TOKEN}
    for _ in range(100):
        await rig.status()
    before = len(gateway.calls)
    clients = [await rig.ask() for _ in range(2)]
    node.kv_free_tokens = 900
    for _ in clients:
        await (await node.next_call()).answer({})
    for client in clients:
        assert (await client.reply()).status == 200
    assert len(gateway.calls) == before
    rig.clock.advance(0.25)
    for _ in range(100):
        await rig.status()
    assert [call.json["kv_free_tokens"] for call in gateway.calls[before:]] == [900]
