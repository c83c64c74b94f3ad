"""A node that does not say how many requests it runs: the gateway finds out, and says why."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from forebay.nodes.backend import COMES_BACK
from forebay.nodes.slot_limit import SlotLimit

from .conftest import OK
from .hot.test_users_and_keys import A, key, start

if TYPE_CHECKING:
    from forebay.nodes.first_bytes import Silent
    from forebay.nodes.slot_rounds import Sample
    from forebay.nodes.stream_pace import Stream
    from forebay.testing import Call, FakeNode, RawClient

    from .conftest import Rig

EVENT = b'data: {"choices": []}\n\n'


async def shown(rig: Rig) -> tuple[int, str | None]:
    (node,) = (await rig.get("/admin/nodes")).json["data"]
    return node["slots"], node["slots_reason"]


async def answered(rig: Rig, node: FakeNode, count: int, seconds: float = 1.0) -> None:
    """Let so many requests that wait be answered, each after that time."""
    clients = [await rig.ask() for _ in range(count)]

    async def serve() -> None:
        for _ in range(count):
            call: Call = await node.next_call()
            rig.clock.advance(seconds)
            await call.answer(OK)

    serving = asyncio.create_task(serve())
    for client in clients:
        assert (await client.reply()).status == 200
    await serving


async def test_requests_that_wait_get_more_slots_while_that_gains(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "forebay.nodes")
    node = await rig.node(kind="openai")
    await rig.start(node)
    assert await shown(rig) == (1, None)
    await answered(rig, node, 3)
    assert await shown(rig) == (2, "the first answers came with 1 at once")
    page = (await rig.get("/metrics")).body.decode()
    assert 'forebay_node_slots_changes_total{node="n1"} 1.0' in page
    (line,) = [one for one in caplog.records if "slots" in one.getMessage()]
    assert line.getMessage() == "node has 2 slots now"
    assert vars(line)["reason"] == "the first answers came with 1 at once"
    running = [await rig.run(node), await rig.run(node)]
    for client, call in running:
        await call.answer(OK)
        assert (await client.reply()).status == 200


async def test_a_stream_that_is_cancelled_excuses_one_refusal_and_no_more(rig: Rig) -> None:
    node = await rig.node(kind="openai")
    await rig.start(node)
    await answered(rig, node, 3)
    client, call = await rig.run(node, stream=True)
    client.close()
    await call.gone()
    waits = await rig.ask()
    await (await node.next_call()).answer({}, 429)
    await rig.wait_until("waiting", 1)
    assert (await shown(rig))[0] == 2
    rig.clock.advance(0.1)
    await (await node.next_call()).answer({}, 429)
    await rig.wait_until("waiting", 1)
    assert (await shown(rig))[0] == 1
    rig.clock.advance(1.0)
    await (await node.next_call()).answer(OK)
    assert (await waits.reply()).status == 200


async def test_streams_that_have_not_begun_are_told_when_another_answer_ends(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its slot is given on: what a stream waits for inside must not become more."""
    told: list[tuple[int, float]] = []

    def note_silent(_: SlotLimit, streams: list[Silent], now_s: float) -> bool:
        told.append((len(streams), now_s))
        return False

    monkeypatch.setattr(SlotLimit, "note_silent", note_silent)
    node = await rig.node(kind="openai")
    await rig.start(node)
    await answered(rig, node, 3)  # and now two run at once
    told.clear()
    ended, silent = await rig.run(node, stream=True), await rig.run(node, stream=True)
    rig.clock.advance(4.0)
    ended_s = rig.clock.monotonic_s()
    await ended[1].answer(OK)
    assert (await ended[0].reply()).status == 200
    assert told == [(1, ended_s)]
    await silent[1].answer(OK)
    assert (await silent[0].reply()).status == 200
    assert told[1:] == [(0, ended_s)]


async def test_how_far_streams_have_come_is_told_when_one_begins_and_when_one_ends(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its bytes and when the last of them came; none where more could run."""
    told: list[list[tuple[float, float]]] = []
    names: list[str] = []  # of those that have ended

    def note_streams(_: SlotLimit, streams: list[Stream], __: float, ended: str) -> bool:
        names.append(ended)
        assert {model for model, *_ in streams} <= {"m"}
        assert len({name for _, name, *_ in streams}) == len(streams)
        told.append([(done, heard_s) for *_, done, heard_s in streams])
        return False

    monkeypatch.setattr(SlotLimit, "watches", True)
    monkeypatch.setattr(SlotLimit, "note_streams", note_streams)
    node = await rig.node(kind="openai")
    await rig.start(node)
    await answered(rig, node, 3)  # and now two run at once
    told.clear()
    (first, one), (second, other) = [await rig.run(node, stream=True) for _ in range(2)]
    times_s = []
    for client, call in ((first, one), (first, one), (second, other)):
        rig.clock.advance(1.0)
        times_s.append(rig.clock.monotonic_s())
        if len(times_s) == 2:
            await call.chunk(EVENT)
        else:
            await call.start_stream()
            await call.chunk(EVENT)
            await client.head()
        assert await client.chunk() == EVENT
    size = len(EVENT)
    assert told == [[(size, times_s[0])], [(2 * size, times_s[1]), (size, times_s[2])]]
    await one.end()
    assert await first.chunk() is None
    assert sorted(told[2]) == [(size, times_s[2]), (2 * size, times_s[1])]
    await other.end()
    assert await second.chunk() is None
    assert told[3:] == [[]]


async def swapping(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> tuple[FakeNode, list[str]]:
    """Start a node that loads models one at a time; return it and what its limit will be told."""
    told: list[str] = []

    def note(_: SlotLimit, sample: Sample, *__: object) -> bool:
        told.append(f"{sample.model} answered")
        return False

    def note_first_byte(_: SlotLimit, model: str, *__: object) -> bool:
        told.append(f"{model} began")
        return False

    def note_silent(_: SlotLimit, streams: list[Silent], __: float) -> bool:
        told.extend(f"{model} silent" for model, *_ in streams)
        return False

    node = await rig.node(kind="ollama", models=["m", "other"])
    node.loaded = ["m"]
    await rig.start(node)
    await answered(rig, node, 5)
    assert await shown(rig) == (2, "the first answers came with 1 at once")
    for name, noted in (
        ("note", note),
        ("note_first_byte", note_first_byte),
        ("note_silent", note_silent),
    ):
        monkeypatch.setattr(SlotLimit, name, noted)
    return node, told


async def stream(rig: Rig, node: FakeNode, model: str, seconds: float) -> None:
    """Have one stream served that begins after so long."""
    client, call = await rig.run(node, model=model, stream=True)
    rig.clock.advance(seconds)
    await call.start_stream()
    await call.chunk(EVENT)
    await client.head()
    assert await client.chunk() == EVENT
    rig.clock.advance(1.0)
    await call.end()
    assert await client.chunk() is None


async def test_a_stream_that_may_have_waited_for_a_load_says_nothing_of_the_slots(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the first one with the model that has to be loaded again for that."""
    node, told = await swapping(rig, monkeypatch)
    for model, seconds in (("m", 0.1), ("other", 7.0), ("other", 0.1), ("m", 7.0), ("m", 0.1)):
        told.append(f"{model} sent")
        node.loaded = [model]  # which it says from the beginning of the load on
        await stream(rig, node, model, seconds)
    assert told == [
        "m sent", "m began", "m answered", "other sent", "other sent", "other began",
        "other answered", "m sent", "m sent", "m began", "m answered",
    ]  # fmt: skip


async def test_a_stream_that_waits_for_a_load_does_not_wait_inside(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, told = await swapping(rig, monkeypatch)
    node.loaded = ["m", "other"]  # there is room for both, and the second has not begun yet
    rig.clock.advance(10.0)
    while (await rig.get("/admin/nodes")).json["data"][0]["loaded"] != ["m", "other"]:
        pass
    (ended, call), (silent, loads) = [
        await rig.run(node, stream=True, model=model) for model in ("m", "other")
    ]
    rig.clock.advance(4.0)
    await call.answer(OK)
    assert (await ended.reply()).status == 200
    await loads.answer(OK)
    assert (await silent.reply()).status == 200
    assert told == ["m answered"]


async def test_a_request_that_times_out_while_its_model_is_loaded_takes_no_slot(rig: Rig) -> None:
    node = await rig.node(kind="ollama", models=["m", "other"])
    node.loaded = ["m"]
    await rig.start(node, queue={"first_byte_seconds": 5})
    await answered(rig, node, 5)
    client, _ = await rig.run(node, model="other", stream=True)
    rig.clock.advance(5.0)
    assert (await client.reply()).json["error"]["code"] == "first_byte_timeout"
    assert (await shown(rig))[0] == 2


async def test_a_number_in_the_settings_is_kept(rig: Rig) -> None:
    node = await rig.node(kind="openai")
    await rig.start(node, nodes=[{"name": "n1", "url": node.url, "slots": 1}])
    await answered(rig, node, 20)
    assert await shown(rig) == (1, None)
    assert node.max_running == 1
    assert "slots_changes_total{" not in (await rig.get("/metrics")).body.decode()


async def test_what_the_node_says_is_where_it_begins_and_the_most(rig: Rig) -> None:
    node = await rig.node(slots=3)
    await rig.start(node)
    assert await shown(rig) == (3, "the node says that it runs 3 at once")
    await answered(rig, node, 20)
    assert (await shown(rig))[0] == 3


async def test_requests_one_at_a_time_change_nothing(rig: Rig) -> None:
    """With a second slot free, one at a time says nothing of how many would run well."""
    node = await rig.node(kind="openai")
    await rig.start(node)
    await answered(rig, node, 3)
    for _ in range(30):
        await rig.measure(node, 1.0)
    assert (await shown(rig))[0] == 2


async def test_requests_that_wait_for_the_rate_of_their_key_change_nothing(rig: Rig) -> None:
    """They run one at a time, too, although each had to wait, and a probe runs beside it."""
    node = await rig.node(kind="openai")
    await start(rig, node, keys=[key("a", requests_per_minute=1)])
    for number in range(12):
        [client] = await rig.line_up(1, headers=A) if number else [await rig.ask(headers=A)]
        rig.clock.advance(59.0 + 0.01 * number)  # it starts a minute after the one before
        call = await node.next_call()
        rig.clock.advance(1.0)
        await call.answer(OK)
        assert (await client.reply()).status == 200
    assert (await shown(rig))[0] == 2


async def refused_in_a_trial(
    rig: Rig, status: int = 429, **headers: str
) -> tuple[FakeNode, RawClient, Call]:
    """Have the second of two at once refused, where one is known to run: what waits, what runs."""
    node = await rig.node(kind="openai")
    await rig.start(node)
    await answered(rig, node, 3)
    _, runs = await rig.run(node)
    waits, call = await rig.run(node)
    await call.answer({"error": "busy"}, status=status, headers=headers)
    await rig.wait_until("waiting", 1)
    assert await shown(rig) == (1, "the node refused a request as one too many")
    return node, waits, runs


async def test_a_node_that_refuses_in_a_trial_gets_one_less_and_the_request_its_place(
    rig: Rig,
) -> None:
    node, waits, runs = await refused_in_a_trial(rig)
    await runs.answer(OK)  # and the slot is given on at once: the node has not to rest
    await (await node.next_call()).answer(OK)
    assert (await waits.reply()).status == 200


@pytest.mark.parametrize("status", [429, 503])
async def test_a_refusal_that_a_trial_asked_for_rests_the_node_not_even_if_it_says_for_how_long(
    rig: Rig, status: int
) -> None:
    """It says when to come again with one more; what the node runs anyway goes on."""
    node, waits, runs = await refused_in_a_trial(rig, status, **{"retry-after": "10"})
    await runs.answer(OK)
    await (await node.next_call()).answer(OK)
    assert (await waits.reply()).status == 200


async def test_a_refusal_that_no_trial_asked_for_rests_the_node_as_long_as_it_says(
    rig: Rig,
) -> None:
    node, waits, runs = await refused_in_a_trial(rig)
    await runs.answer(OK)  # and now one is known to be what it takes
    call = await node.next_call()
    await call.answer({"error": "busy"}, status=429, headers={"retry-after": "5"})
    await rig.wait_until("processing", 0)
    rig.clock.advance(4.9)
    await rig.wait_until("waiting", 1)
    rig.clock.advance(0.1)
    await (await node.next_call()).answer(OK)
    assert (await waits.reply()).status == 200


async def test_a_node_that_refuses_although_nothing_runs_there_rests(rig: Rig) -> None:
    node = await rig.node(kind="openai")
    await rig.start(node)
    await answered(rig, node, 3)
    client, call = await rig.run(node)
    sent = len(node.calls)
    await call.answer({"error": "busy"}, status=429)
    await rig.wait_until("waiting", 1)
    assert len(node.calls) == sent
    rig.clock.advance(1.0)
    await (await node.next_call()).answer(OK)
    assert (await client.reply()).status == 200


async def test_what_was_found_survives_a_change_of_the_settings(rig: Rig) -> None:
    node = await rig.node(kind="openai")
    await rig.start(node)
    await answered(rig, node, 3)
    rig.given["nodes"][0]["connect_seconds"] = 3
    assert (await rig.get("/admin/reload", method="POST")).status == 200
    assert (await shown(rig))[0] == 2


async def test_what_was_found_survives_a_number_in_the_settings(rig: Rig) -> None:
    node = await rig.node(kind="openai")
    await rig.start(node)
    await answered(rig, node, 3)
    given, found = rig.given["nodes"][0], await shown(rig)
    for slots, seen in ((5, (5, None)), (6, (6, None)), ("auto", found)):
        given["slots"] = slots
        assert (await rig.get("/admin/reload", method="POST")).status == 200
        assert await shown(rig) == seen


async def test_a_node_that_comes_back_does_not_say_why_it_had_another_number(rig: Rig) -> None:
    node = await rig.node(kind="openai")
    await rig.start(node)
    await answered(rig, node, 3)
    found = await shown(rig)
    node.health = "error"
    await rig.until_node("n1", "offline")
    node.health = "ok"
    await rig.until_node("n1", "online")
    assert await shown(rig) == (1, COMES_BACK)
    await rig.measure(node, 0.1)
    assert await shown(rig) == found
