"""The last requests and the last day survive a restart."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from forebay.errors import StoreFailed

from ..hot.test_users_and_keys import A, B, key, start
from .test_usage import USED, serve, written

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from forebay.gateway.records.service import RecordService
    from forebay.records.store import RecordStore
    from forebay.testing import FakeNode

    from ..conftest import Rig

REQUESTS = "/v1/queue/requests"
HEARD = '"of another worker"'


async def ended(rig: Rig, query: str = "", headers: dict[str, str] | None = None) -> list[Any]:
    rows: list[Any] = (await rig.get(f"{REQUESTS}?state=ended{query}", headers)).json["data"]
    return rows


async def restart(rig: Rig, node: FakeNode) -> None:
    """Start another gateway on the same database, with the same settings."""
    await rig.gateway.stop(0.0)
    settings = {name: rig.given[name] for name in ("keys",) if name in rig.given}
    if settings:
        await start(rig, node, keys=rig.given["keys"][:-1])
    else:
        await rig.start(node)


async def test_ended_requests_survive_a_restart_as_they_were(rig: Rig) -> None:
    node = await rig.node(slots=1)
    await rig.start(node)
    await serve(rig, node, user="ann", headers={"X-Request-Id": "one"})
    running, call = await rig.run(node, user="bob")
    (waiting,) = await rig.line_up(1, user="bob", headers={"X-Request-Id": "two"})
    waiting.close()
    await rig.wait_until("waiting", 0)
    await call.answer(USED)
    assert (await running.reply()).status == 200
    await written(rig, 3)
    before = await ended(rig)
    assert len(before) == 3
    await restart(rig, node)
    assert await ended(rig) == before
    await serve(rig, node, user="cyd")
    assert [row["user"] for row in await ended(rig)] == ["cyd", *(row["user"] for row in before)]
    assert [row["id"] for row in await ended(rig, "&user=ann")] == ["one"]
    assert [row["id"] for row in await ended(rig, "&outcome=cancelled")] == ["two"]
    assert [row["user"] for row in await ended(rig, "&id=two")] == ["bob"]
    assert len(await ended(rig, "&model=m")) == 4


async def test_a_key_sees_only_its_own_requests_after_a_restart(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a"), key("b")])
    await serve(rig, node, headers=A)
    rig.clock.advance(1.0)  # of two that arrive in one moment either may be the newer
    await serve(rig, node, headers=B)
    await written(rig, 2)
    await restart(rig, node)
    assert [row["user"] for row in await ended(rig, headers=A)] == ["a"]
    assert [row["user"] for row in await ended(rig)] == ["b", "a"]


async def begin(rig: Rig) -> tuple[FakeNode, RecordService, RecordStore]:
    """Start with one request that is written."""
    node = await rig.node()
    await rig.start(node)
    await serve(rig, node)
    await written(rig, 1)
    records = rig.gateway.parts.records
    return node, records, await records.ready()


async def three_kept(rig: Rig, store: RecordStore) -> list[str]:
    """Let time pass until three requests are in the database; return them."""
    for _ in range(300):
        rig.clock.advance(0.5)
        await rig.queue()
        kept = await asyncio.wrap_future(store.requests(""))
        if len(kept) == 3:
            return kept
    raise AssertionError(kept)


async def test_requests_heard_of_while_others_are_written_are_written_too(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, records, store = await begin(rig)
    add = store.add_requests

    def add_and_hear(replica: str, requests: Sequence[str]) -> Future[None]:
        monkeypatch.undo()
        begun = add(replica, requests)
        records.hear([], [HEARD])  # before the write is done
        return begun

    monkeypatch.setattr(store, "add_requests", add_and_hear)
    await serve(rig, node)
    assert (await three_kept(rig, store))[2] == HEARD


async def test_requests_that_cannot_be_written_are_kept_for_the_next_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, records, store = await begin(rig)
    failed = asyncio.Event()

    def fail(replica: str, requests: Sequence[str]) -> Future[None]:
        monkeypatch.undo()
        failed.set()
        records.hear([], [HEARD])
        raise StoreFailed("away")

    monkeypatch.setattr(store, "add_requests", fail)
    await serve(rig, node, user="ann")
    kept = await three_kept(rig, store)
    assert failed.is_set()
    assert "ann" in kept[1]
    assert kept[2] == HEARD


async def test_the_last_day_survives_a_restart(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    rig.clock.advance(0.5)
    await serve(rig, node)
    for _ in range(150):  # seconds
        rig.clock.advance(1.0)
        await rig.get("/health")
    await written(rig, 1)
    before = (await rig.get("/events/history")).json
    assert sum(before["served"]) == 1
    assert len(before["at"]) == len(before["depth"]["normal"]) == len(before["tokens_per_second"])
    await restart(rig, node)
    after = (await rig.get("/events/history?hours=1")).json
    assert after["at"][: len(before["at"])] == before["at"]
    waits = after["wait_p95_seconds_by_priority"]
    assert [one for one in waits["normal"] if one is not None] == [0.0]
    assert set(waits["high"]) == {None}
    assert sum(after["served"]) == 1


@pytest.mark.parametrize("hours", ["0", "25", "x", ""])
async def test_more_than_a_day_is_not_told(rig: Rig, hours: str) -> None:
    await rig.start(await rig.node())
    refused = await rig.get(f"/events/history?hours={hours}")
    assert (refused.status, refused.json["error"]["param"]) == (400, "hours")


async def test_the_day_is_for_those_who_may_see_the_page_s_events(rig: Rig) -> None:
    await start(rig, await rig.node(), keys=[key("a")])
    assert (await rig.get("/events/history", A)).status == 200
    client = await rig.client()
    await client.get("/events/history")
    assert (await client.reply()).status == 401
