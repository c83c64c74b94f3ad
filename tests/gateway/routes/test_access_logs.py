"""`GET /admin/logs`: each request as it ends, for operators, and never at a cost to requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from forebay.gateway.hot.ended import EndedBatch, EndedRequest
from forebay.gateway.routes import access_logs
from forebay.gateway.routes.access_logs import FOLLOWERS_MAX, LINES_MAX, LogFeed

from ..conftest import OK
from ..hot.test_users_and_keys import SECRETS, A, B, key

if TYPE_CHECKING:
    import pytest

    from forebay.testing import RawClient

    from ..conftest import Rig

PATH = "/admin/logs"
LIMIT_S = 10.0


async def following(rig: Rig, headers: dict[str, str] | None = None) -> RawClient:
    client = await rig.client()
    await client.get(PATH, headers or {})
    head = await client.head()
    assert (head.status, head.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert await events(client) == [("hello", {"workers": 1})]
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
    followers = [await rig.client() for _ in range(FOLLOWERS_MAX)]
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
    with feed.follow() as follower:
        feed._take(batch(rig, 5))
        feed._take(batch(rig, LINES_MAX + 7))
        told = (await follower.next()).decode()
    assert told.startswith('event: lost\ndata: {"lines":12}\n\n')
    assert told.count("event: request") == LINES_MAX
    assert told.endswith(f'"/{LINES_MAX + 6}"\n\n')
    assert maker.made == 5 + LINES_MAX
    assert feed.followers == set()
