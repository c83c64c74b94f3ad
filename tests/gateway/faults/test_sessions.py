"""Faults 1 to 7 and 63 where the request is a session's: nobody's socket is behind it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..sessions.session_steps import (
    Http,
    answer,
    delta,
    finish,
    follow,
    look,
    new_session,
    prompt,
    turn,
    until_turn,
)
from .conftest import FIRST, PROMPT, SECOND, bearer, key

if TYPE_CHECKING:
    from forebay.testing import FakeNode

    from .conftest import FaultRig

PIECE = "あ" * 1000  # three bytes each


async def started(rig: FaultRig, **settings: object) -> tuple[FakeNode, str]:
    node = await rig.node()
    await rig.start(node, **settings)
    return node, await new_session(rig)


async def test_fault_1_a_client_that_closes_after_its_prompt_was_accepted_changes_nothing(
    rig: FaultRig,
) -> None:
    node, session = await started(rig)
    _, running = await rig.run(node)
    client = await rig.client()
    await client.post(f"/session/{session}/prompt", {"prompt": PROMPT})
    await rig.wait_until("waiting", 1)
    client.abort()
    await running.answer({"choices": []})
    await answer(await node.next_call(), "for whoever comes back")
    events = await follow(rig, session)
    end = await events.until("turn_complete")
    assert end["text"] == "for whoever comes back"


async def test_fault_2_a_reader_that_closes_in_mid_stream_frees_its_place_and_nothing_else(
    rig: FaultRig,
) -> None:
    node, session = await started(rig)
    client = await rig.client()
    await client.get(f"/session/{session}/events")
    await client.head()
    prompt_id = await prompt(rig, session, PROMPT)
    call = await node.next_call()
    await call.start_stream()
    await call.chunk(delta("half"))
    client.abort()
    log = (await rig.gateway.parts.sessions.ready()).find(session, None).log
    await rig.until(lambda: log.readers == 0, "a reader outlived its client")
    await finish(call)
    events = await follow(rig, session)
    assert (await events.end_of(prompt_id))["text"] == "half"


async def test_fault_3_a_client_that_closes_while_its_branch_waits_gives_up_its_turn(
    rig: FaultRig,
) -> None:
    node, session = await started(rig)
    prompt_id = await prompt(rig, session, PROMPT)
    call = await node.next_call()
    client = await rig.client()
    await client.post(f"/session/{session}/branch", {})
    line = (await rig.gateway.parts.sessions.ready()).find(session, None).queue
    await rig.until(lambda: any(line.branches()), "the branch does not wait")
    client.abort()
    await rig.until(lambda: not any(line.branches()), "a branch outlived its client")
    await answer(call, "one")
    await until_turn(rig, session, prompt_id, "completed")
    assert await rig.metric("forebay_sessions") == 1.0


async def test_fault_4_cancelled_in_the_instant_of_the_grant_the_slot_goes_to_the_next(
    rig: FaultRig,
) -> None:
    node, session = await started(rig)
    _, running = await rig.run(node)
    prompt_id = await prompt(rig, session, PROMPT)
    await rig.wait_until("waiting", 1)
    (next_one,) = await rig.line_up(1)
    desk = (await rig.gateway.parts.sessions.ready()).find(session, None)
    relay = rig.gateway.parts.relay
    exchange = relay.exchanges[prompt_id]

    def cancelled_at_once(*_: object) -> None:
        desk.cancel()

    exchange.sink.starts = cancelled_at_once  # type: ignore[method-assign, assignment]
    await running.answer({"choices": []})
    call = await node.next_call()
    assert "stream" not in call.json  # it is the plain request that was behind it
    await call.answer({"choices": []})
    assert (await next_one.reply()).status == 200
    await until_turn(rig, session, prompt_id, "cancelled")


async def test_fault_5_cancelled_again_and_again_while_it_connects_nothing_leaks(
    rig: FaultRig,
) -> None:
    node, session = await started(rig)
    for _ in range(50):
        prompt_id = await prompt(rig, session, PROMPT)
        first, second = await asyncio.gather(Http(rig).cancel(session), Http(rig).cancel(session))
        assert {first.body["cancelled"], second.body["cancelled"]} <= {True, False}
        seen = await turn(rig, session, prompt_id)
        assert seen["status"] == "cancelled"
    assert (await look(rig, f"/session/{session}"))["pendingCount"] == 0
    assert len(node.calls) <= 50


async def test_fault_6_many_readers_of_much_text_dropped_at_once_hold_up_nobody(
    rig: FaultRig,
) -> None:
    node, session = await started(rig)
    other = await new_session(rig)
    readers = [await rig.client(rcvbuf=4096) for _ in range(30)]
    for number, reader in enumerate(readers):
        await reader.get(f"/session/{(session, other)[number % 2]}/events")
        await reader.head()
        reader.stop_reading()
    held = [(await rig.gateway.parts.sessions.ready()).find(one, None) for one in (session, other)]
    assert [one.log.readers for one in held] == [15, 15]
    for one in (session, other):
        prompt_id = await prompt(rig, one, PROMPT)
        await answer(await node.next_call(), *[PIECE] * 300)
        await until_turn(rig, one, prompt_id, "completed")
    for reader in readers:
        reader.abort()
    await rig.healthy()
    await rig.until(lambda: not any(one.log.readers for one in held), "a reader was kept")


async def test_fault_7_a_reader_that_does_not_read_is_bounded_and_cut_off(rig: FaultRig) -> None:
    node, session = await started(rig, server={"write_seconds": 5})
    stuck = await rig.client(rcvbuf=4096)
    await stuck.get(f"/session/{session}/events")
    await stuck.head()
    stuck.stop_reading()
    prompt_id = await prompt(rig, session, PROMPT)
    call = await node.next_call()
    await call.start_stream()
    held = (await rig.gateway.parts.sessions.ready()).find(session, None)
    for number in range(900):  # ring, socket buffers and more
        await call.chunk(delta(PIECE))
        if number % 100 == 0:
            await rig.healthy()
    await finish(call)
    await rig.until(lambda: held.queue.is_empty, "the turn waits for its reader")
    assert held.log._bytes <= 3_000_000  # the last event holds the whole text

    def has_left() -> bool:
        rig.clock.advance(1.0)
        return held.log.readers == 0

    await rig.until(has_left, "a reader that does not read was kept")
    assert (await turn(rig, session, prompt_id))["status"] == "completed"


async def test_fault_63_another_tenants_session_or_prompt_id_is_404(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node, keys=[key("first"), key("second")])
    mine, theirs = bearer(FIRST), bearer(SECOND)
    session = await new_session(rig, mine)
    said = await Http(rig).prompt(session, mine, prompt=PROMPT)
    own = await new_session(rig, theirs)
    for path in (
        f"/session/{session}", f"/session/{session}/turns/{said.body['promptId']}",
        f"/session/{session}/messages", f"/session/{session}/pending-prompts",
        f"/session/{own}/turns/{said.body['promptId']}", f"/v1/queue/{said.body['promptId']}",
    ):  # fmt: skip
        assert (await rig.get(path, theirs)).status == 404, path
    await answer(await node.next_call())
