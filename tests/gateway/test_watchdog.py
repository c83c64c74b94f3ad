"""A slot that was lost costs two seconds: the watchdog finds it, says so and gives it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pytest

from forebay.core import Cancelled, NodeRested, NodeView
from forebay.gateway.holdings import byte_faults, connection_faults, slot_faults
from forebay.relay.watchdog import LOOK_S

from .conftest import OK
from .test_metrics import scrape

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.relay.attempt import Attempt
    from forebay.relay.exchange import Exchange

    from .conftest import Rig


Lose: TypeAlias = "Callable[[Rig], None]"


def running(rig: Rig) -> Exchange:
    (exchange,) = (one for one in rig.gateway.parts.relay.exchanges.values() if one.node)
    return exchange


def lose_the_request(rig: Rig) -> None:
    """Forget an exchange that holds a lease."""
    del rig.gateway.parts.relay.exchanges[running(rig).id]


def attempt_of(exchange: Exchange) -> Attempt:
    assert exchange.attempt is not None
    return exchange.attempt


def lose_the_connection(rig: Rig) -> None:
    """Remember an exchange that nothing will ever call again: an exception in mid-answer."""
    attempt_of(running(rig)).connection = None


def lose_the_connect(rig: Rig) -> None:
    """Remember a connect that has ended without telling anyone."""
    attempt = attempt_of(running(rig))
    assert attempt.backend is not None
    attempt.connection = None
    attempt._opening = attempt.backend.pool.open(lambda _: None)
    attempt.backend.pool.openings.clear()


def lose_the_lease(rig: Rig) -> None:
    """Let a request run that holds no slot."""
    rig.gateway.parts.coordinator.post(Cancelled(running(rig).id))


LOSSES = [lose_the_request, lose_the_connection, lose_the_connect, lose_the_lease]


@pytest.mark.parametrize("lose", LOSSES)
async def test_what_was_lost_is_found_at_the_second_look_and_given_back(
    rig: Rig, caplog: pytest.LogCaptureFixture, lose: Lose
) -> None:
    node = await rig.node(slots=1)
    await rig.start(node)
    await rig.run(node)
    ticket = running(rig).id
    lose(rig)
    rig.clock.advance(LOOK_S)
    assert (await scrape(rig)).value("forebay_leases_orphaned_total") == 0
    rig.clock.advance(LOOK_S)
    seen = await scrape(rig)
    assert seen.value("forebay_leases_orphaned_total") == 1
    assert seen.value("forebay_leases") == 0
    assert not rig.gateway.parts.relay.exchanges
    assert any(ticket in record.getMessage() and "n1" in record.getMessage()
               for record in caplog.records if record.levelname == "ERROR")  # fmt: skip
    client, call = await rig.run(node)  # the slot is free again
    await call.answer(OK)
    assert (await client.reply()).status == 200


@pytest.mark.parametrize("lose", [lose_the_connection, lose_the_lease])
async def test_a_client_whose_request_was_lost_is_told(rig: Rig, lose: Lose) -> None:
    node = await rig.node(slots=1)
    await rig.start(node)
    client, _ = await rig.run(node)
    lose(rig)
    rig.clock.advance(2 * LOOK_S)
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (500, "internal_error")


async def test_what_runs_and_what_waits_is_left_alone(rig: Rig) -> None:
    node = await rig.node(slots=1)
    await rig.start(node)
    client, call = await rig.run(node)
    (waiting,) = await rig.line_up(1)
    rig.clock.advance(10 * LOOK_S)
    seen = await scrape(rig)
    assert seen.value("forebay_leases_orphaned_total") == 0
    assert seen.value("forebay_leases") == 1
    await call.answer(OK)
    await (await node.next_call()).answer(OK)
    assert [(await one.reply()).status for one in (client, waiting)] == [200, 200]


async def test_an_idle_gateway_holds_its_connections_and_nothing_else(rig: Rig) -> None:
    node = await rig.node(slots=2)
    await rig.start(node)
    before = await scrape(rig)
    client, call = await rig.run(node)
    running = await scrape(rig)
    assert running.value("forebay_leases") == 1
    assert running.value("forebay_connections", side="node") == 1
    open_before = before.value("forebay_connections", side="client")
    assert running.value("forebay_connections", side="client") == open_before + 1
    await call.answer(OK)
    await client.reply()
    after = await scrape(rig)
    assert after.value("forebay_leases") == 0
    assert after.value("forebay_body_bytes") == 0
    assert after.value("forebay_connections", side="node") == 1  # kept for the next one
    assert after.value("forebay_tasks") == before.value("forebay_tasks")


async def test_a_body_is_counted_while_it_arrives(rig: Rig) -> None:
    await rig.start(await rig.node())
    client = await rig.client()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    await client.send(head.replace(b"Host: x", b"Host: 127.0.0.1") + b"x" * 500_000)
    for _ in range(1000):
        if counted := (await scrape(rig)).value("forebay_body_bytes"):
            break
    assert counted == 1_000_000  # room for all of it is taken at its head
    client.close()
    for _ in range(1000):
        if not (counted := (await scrape(rig)).value("forebay_body_bytes")):
            break
    assert counted == 0


async def test_the_connections_of_a_removed_node_count_until_they_close(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node)
    rig.gateway.parts.nodes.remove("n1")
    assert rig.gateway.parts.nodes.connections() == 1
    await call.answer(OK)
    await client.reply()
    await rig.queue()
    assert rig.gateway.parts.nodes.connections() == 0


# -- the self-check


@pytest.mark.parametrize("lose", LOSSES)
async def test_the_self_check_tells_of_what_was_lost(rig: Rig, lose: Lose) -> None:
    node = await rig.node(slots=1)
    gateway = await rig.start(node)
    faults: list[str] = []
    gateway.check_itself(faults.extend)
    await rig.run(node)
    await rig.line_up(2)
    rig.clock.advance(5 * LOOK_S)
    assert faults == []
    lose(rig)
    rig.clock.advance(2 * LOOK_S)
    assert any("without" in fault for fault in faults)


async def test_the_self_check_tells_of_bytes_that_nobody_holds(rig: Rig) -> None:
    gateway = await rig.start(await rig.node())
    faults: list[str] = []
    gateway.check_itself(faults.extend)
    gateway._server.budget.used_bytes += 7
    rig.clock.advance(LOOK_S)
    assert faults == ["7 bytes of bodies are counted, 0 are held"]
    gateway._server.budget.used_bytes -= 7


async def test_slots_that_are_found_may_rise_and_fall_between_two_looks(rig: Rig) -> None:
    node = await rig.node(kind="openai")
    gateway = await rig.start(node)
    faults: list[str] = []
    gateway.check_itself(faults.extend)
    (backend,) = gateway.parts.nodes
    rig.clock.advance(LOOK_S)
    for _ in range(4):
        await rig.run(node)
    gateway.parts.relay.post(NodeRested(backend.name))
    rig.clock.advance(3 * LOOK_S)
    assert faults == []


def test_bytes_and_connections_must_agree_with_who_holds_them() -> None:
    assert byte_faults(3, [1, 2]) == connection_faults(3, 3) == []
    assert byte_faults(-1, []) == ["-1 bytes of bodies are counted, 0 are held"]
    assert connection_faults(1, 2) == ["1 connections to nodes are open, 2 are in use"]


def test_a_node_may_run_more_than_its_slots_only_while_these_become_fewer() -> None:
    def view(slots: int, in_flight: int) -> list[NodeView]:
        return [NodeView("n1", "online", slots, in_flight, 0.0, (), None)]

    found, ceilings = slot_faults(view(4, 4), {"n1": 4}, {})
    assert found == []
    found, ceilings = slot_faults(view(2, 4), {"n1": 2}, ceilings)  # fewer now: it drains
    assert found == []
    found, ceilings = slot_faults(view(2, 3), {"n1": 2}, ceilings)
    assert found == []
    found, _ = slot_faults(view(2, 4), {"n1": 2}, ceilings)
    assert found == ["4 requests run on n1, which has 2 slots"]
    assert slot_faults(view(3, 4), {"n1": 4}, {})[0] == []  # it rests, with fewer for a while
