"""`GET /admin/logs`: each request as it ends, for operators, and never at a cost to requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from forebay.gateway.hot.access_record import AccessRecord
from forebay.gateway.hot.ended import EndedBatch, EndedRequest
from forebay.gateway.routes import access_logs
from forebay.gateway.routes.access_logs import (
    LINES_MAX,
    LogCoverage,
    LogFeed,
    LogFollower,
)
from forebay.shares import LOG_STREAMS

from ..conftest import OK
from ..fleet import fleet_rig
from ..hot.test_users_and_keys import SECRETS, A, B, key

if TYPE_CHECKING:
    import pytest

    from forebay.testing import RawClient

    from ..conftest import Rig
    from ..fleet.fleet_rig import FleetRig

PATH = "/admin/logs"
LIMIT_S = 10.0


async def following(rig: Rig, headers: dict[str, str] | None = None) -> RawClient:
    client = await rig.client()
    await client.get(PATH, headers or {})
    head = await client.head()
    assert (head.status, head.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert await events(client) == [("hello", {"processes": 1, "incomplete": []})]
    return client


async def events(client: RawClient) -> list[tuple[str, Any]]:
    async with asyncio.timeout(LIMIT_S):
        text = (await client.chunk() or b"").decode()
    found = [block.partition("\ndata: ") for block in text.split("\n\n") if block]
    return [(name.removeprefix("event: "), msgspec.json.decode(data)) for name, _, data in found]


async def served(rig: Rig, node: Any, **headers: str) -> None:
    client, call = await rig.run(node) if not headers else (await rig.ask(headers=headers), None)
    await (call or await node.next_call()).answer(OK)
    assert (await client.reply()).status == 200


async def test_each_request_is_told_as_it_ends(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    follower = await following(rig)
    await served(rig, node)
    rig.clock.advance(0.1)
    [(name, line)] = await events(follower)
    assert (name, line["outcome"], line["node"], line["route"]) == (
        "request", "served", "n1", "/v1/chat/completions",
    )  # fmt: skip
    assert "user" not in line


async def test_only_an_admin_may_follow_and_a_revoked_key_follows_no_more(rig: Rig) -> None:
    node = await rig.node()
    keys = [key("a", admin=True), key("b")]
    await rig.start(node, keys=keys, environ=SECRETS)
    assert (await rig.get(PATH)).status == 401
    assert (await rig.get(PATH, B)).status == 403
    follower = await following(rig, A)
    rig.given["keys"] = [key("a"), key("b", admin=True)]
    assert (await rig.get("/admin/reload", A, "POST")).status == 200
    await served(rig, node, **B)
    rig.clock.advance(0.1)
    assert await events(follower) == []  # the end


async def test_so_many_may_follow_and_who_leaves_makes_room(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.start()
    monkeypatch.setattr(access_logs, "KEEPALIVE_S", 0.01)  # by which the gateway sees who has left
    followers = [await rig.client() for _ in range(LOG_STREAMS.places)]
    for follower in followers:
        await follower.get(PATH)
        assert (await follower.head()).status == 200
    assert (await rig.get(PATH)).status == 503
    followers[0].close()
    async with asyncio.timeout(LIMIT_S):
        while True:
            late = await rig.client()
            await late.get(PATH)
            if (await late.head()).status == 200:
                break


class Maker:
    """Counts the records that it makes."""

    made = 0

    def records(self, batch: EndedBatch) -> list[Any]:
        self.made += len(batch.requests)
        return [request.route for request in batch.requests]


def batch(rig: Rig, count: int) -> EndedBatch:
    ended = [EndedRequest(f"/{number}", "served", None, 0.0) for number in range(count)]
    return EndedBatch(ended, rig.clock.utc(), 0.0)


async def test_a_slow_reader_loses_the_oldest_lines_and_is_told_how_many(rig: Rig) -> None:
    await rig.start()
    maker = Maker()
    feed = LogFeed(rig.gateway.parts.ended, maker)  # type: ignore[arg-type] # it makes less
    feed._take(batch(rig, 5))
    assert maker.made == 0  # nobody reads, so nothing is made
    follower = feed.follow()
    feed._take(batch(rig, 5))
    feed._take(batch(rig, LINES_MAX + 7))
    told = (await follower.next()).decode()
    follower.close()
    assert told.startswith('event: lost\ndata: {"lines":12}\n\n')
    assert told.count("event: request") == LINES_MAX
    assert told.endswith(f'"/{LINES_MAX + 6}"\n\n')
    assert maker.made == 5 + LINES_MAX
    assert feed.followers == set()


# -- several gateways


async def fleet_follower(rig: Rig) -> RawClient:
    client = await rig.client()
    await client.get(PATH, fleet_rig.bearer("sk-boss"))
    assert (await client.head()).status == 200
    return client


async def lines(client: RawClient, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += [line for name, line in await events(client) if name == "request"]
    return found


async def test_requests_of_the_whole_fleet_are_told_in_order_of_time(fleet: FleetRig) -> None:
    here, there, node = await fleet_rig.two(fleet, keys=fleet_rig.KEYS, environ=fleet_rig.SECRETS)
    for asked in (here, there):
        follower = await fleet_follower(asked)
        assert await events(follower) == [("hello", {"processes": 2, "incomplete": []})]
        for number, rig in enumerate((here, there, here, there)):
            headers = {"X-Request-Id": f"r{number}", **fleet_rig.bearer("sk-one")}
            _, call = await rig.run(node, headers=headers)
            for each in (here, there):
                each.clock.advance(1.0)  # each ends a second after the one before it
            await call.answer(OK)
        await fleet_rig.until(
            here, lambda: not any(r.gateway.parts.relay.exchanges for r in (here, there))
        )
        for rig in (there, here):  # what is newer comes first
            rig.clock.advance(0.1)
        told = await lines(follower, 4)
        assert [line["time"] for line in told] == sorted(line["time"] for line in told)
        assert {line["id"] for line in told} == {"r0", "r1", "r2", "r3"}
        follower.close()


async def test_a_gateway_that_does_not_answer_is_named_until_it_does(
    fleet: FleetRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_logs, "LOOK_S", 0.05)
    settings = {"keys": fleet_rig.KEYS, "environ": fleet_rig.SECRETS}
    here, _, node = await fleet_rig.two(fleet, **settings)
    await fleet.stop(fleet_rig.B)
    follower = await fleet_follower(here)
    silent = {"processes": 2, "incomplete": [fleet_rig.B]}
    assert await events(follower) == [("hello", silent)]
    await fleet.start(fleet_rig.B, node, **settings)
    assert await events(follower) == [("incomplete", {"processes": 2, "incomplete": []})]
    fleet.directory.lost.add(fleet_rig.B)
    assert await events(follower) == [("incomplete", silent)]


async def test_a_follower_that_leaves_leaves_nothing_at_the_others(
    fleet: FleetRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_logs, "KEEPALIVE_S", 0.01)
    here, _, _ = await fleet_rig.two(fleet, keys=fleet_rig.KEYS, environ=fleet_rig.SECRETS)
    follower = await fleet_follower(here)
    assert await events(follower) == [("hello", {"processes": 2, "incomplete": []})]
    assert here.gateway.parts.peers.in_flight == 1
    follower.close()
    await fleet_rig.until(here, lambda: not here.gateway.parts.peers.in_flight)


async def test_lines_that_come_late_are_told_in_order(rig: Rig) -> None:
    await rig.start()
    follower = LogFollower(LogFeed(rig.gateway.parts.ended, Maker()))  # type: ignore[arg-type]
    follower.cover(LogCoverage(2))
    assert follower.hello().startswith(b"event: hello")
    follower.put([AccessRecord("12:00:01", "/b", "served"), AccessRecord("12:00:03", "/d", "")], 0)
    telling = asyncio.ensure_future(follower.next())
    await asyncio.sleep(0)
    follower.put([AccessRecord("12:00:00", "/a", "served"), AccessRecord("12:00:04", "/e", "")], 0)
    follower.put([AccessRecord("12:00:02", "/c", "served")], 0)
    told = (await telling).decode()
    assert [told.index(f'"/{letter}"') for letter in "abcd"] == sorted(
        told.index(f'"/{letter}"') for letter in "abcd"
    )
    assert '"/e"' not in told  # an older one may still come
    assert '"/e"' in (await follower.next()).decode()
