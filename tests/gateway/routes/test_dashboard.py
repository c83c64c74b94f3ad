"""The page and its pictures, over HTTP: who may look, what they see, and what it costs nobody."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import pytest

from forebay.dashboard.feed import INTERVAL_S
from forebay.gateway.routes import dashboard
from forebay.gateway.routes.dashboard import page_files
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode
from forebay.settings import NodeSettings
from forebay.shares import PAGE_STREAMS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ..conftest import Rig

LIMIT_S = 20.0
SECRET = "s3cret-key-of-the-test"


class Looker:
    """A reader of `/events`."""

    def __init__(self, answer: httpx.Response) -> None:
        self.lines = answer.aiter_lines()
        self.answer = answer

    async def next(self) -> tuple[str, Any]:
        """Return the next event's name and data."""
        name = ""
        async with asyncio.timeout(LIMIT_S):
            async for line in self.lines:
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    return name, msgspec.json.decode(line.removeprefix("data: "))
        raise EOFError

    async def snapshot(self) -> Any:
        name, data = await self.next()
        assert name == "snapshot"
        return data


@pytest.fixture
async def http(rig: Rig) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=LIMIT_S, trust_env=False) as client:
        yield client


async def look(rig: Rig, http: httpx.AsyncClient, **headers: str) -> Looker:
    url = f"http://127.0.0.1:{rig.gateway.port}/events"
    request = http.build_request("GET", url, headers=headers)
    answer = await http.send(request, stream=True)
    rig.stack.push_async_callback(answer.aclose)
    return Looker(answer)


async def pictured(rig: Rig, http: httpx.AsyncClient) -> Any:
    """Return what a reader who comes now sees."""
    looker = await look(rig, http)
    await looker.next()
    return await looker.snapshot()


KEYS = [{"name": "boss", "key_env": "BOSS", "admin": True}, {"name": "a", "key_env": "A"}]
KEYED: dict[str, Any] = {"keys": KEYS, "environ": {"BOSS": SECRET, "A": SECRET + "2"}}


async def test_it_begins_with_hello_and_the_picture_of_the_moment(
    rig: Rig, http: httpx.AsyncClient
) -> None:
    await rig.start(await rig.node(slots=2))
    looker = await look(rig, http)
    name, hello = await looker.next()
    assert looker.answer.headers["content-type"].startswith("text/event-stream")
    assert (name, hello["version"], hello["admin"], hello["keys"]) == ("hello", 1, True, False)
    assert hello["priorities"] == ["high", "normal", "low"]
    picture = await looker.snapshot()
    assert picture["queue"]["waiting"] == 0
    (node,) = picture["nodes"]
    assert (node["name"], node["state"], node["slots"]) == ("n1", "online", 2)
    assert picture["ready"]


async def test_a_change_is_in_the_next_picture_half_a_second_later(
    rig: Rig, http: httpx.AsyncClient
) -> None:
    node = await rig.node(slots=1)
    await rig.start(node)
    looker = await look(rig, http)
    await looker.next()
    await looker.snapshot()
    await rig.ask()
    await node.next_call()
    await rig.ask(headers={"x-forebay-priority": "high"})
    await rig.wait_until("waiting", 1)
    rig.clock.advance(INTERVAL_S)
    picture = await looker.snapshot()
    assert (picture["queue"]["waiting"], picture["queue"]["processing"]) == (1, 1)
    assert picture["queue"]["by_priority"]["high"] == 1
    assert picture["nodes"][0]["in_flight"] == 1
    assert [one["waiting"] for one in picture["models"] if one["model"] == "m"] == [1]


async def test_the_time_line_is_there_for_whoever_looks_later(
    rig: Rig, http: httpx.AsyncClient
) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.measure(node, 0.25)
    rig.clock.advance(1.75)
    _, hello = await (await look(rig, http)).next()
    assert hello["history"]["served"] == [1, 0]
    assert hello["history"]["sample_number"] == 2
    assert hello["history"]["wait_p50_seconds"] == [0.0, 0.0]


async def test_tokens_and_failures_are_told_of_the_last_minutes(
    rig: Rig, http: httpx.AsyncClient
) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, stream=True)
    rig.clock.advance(0.5)
    await call.start_stream()
    await call.chunk(b'data: {"usage": {"prompt_tokens": 3, "completion_tokens": 60}}\n\n')
    await call.chunk(b"data: [DONE]\n\n")
    await call.end()
    assert (await client.reply()).status == 200
    next(iter(rig.gateway.parts.nodes)).failed("status", "m", "", 0.0)
    rig.clock.advance(1.0)
    picture = await pictured(rig, http)
    queue = picture["queue"]
    assert queue["tokens_per_second"] == 30.0  # two seconds are known
    assert 0.25 < queue["first_token_p50_seconds"] <= queue["first_token_p95_seconds"] <= 0.5
    assert picture["nodes"][0]["failures_15_minutes"] == {"status": 1}


async def test_what_was_refused_is_a_problem_with_a_remedy_and_no_wait(
    rig: Rig, http: httpx.AsyncClient
) -> None:
    await rig.start(await rig.node())
    assert (await (await rig.ask("unknown")).reply()).status == 404
    rig.clock.advance(1.0)
    picture = await pictured(rig, http)
    (problem,) = picture["problems"]
    assert (problem["code"], problem["kind"], problem["last_minute"]) == (
        "model_not_found", "caller", 1,
    )  # fmt: skip
    assert "/v1/models" in problem["remedy"]["en"]
    assert picture["sample"]["wait_p50_seconds"] is None


async def test_a_dead_node_is_told_in_words(rig: Rig, http: httpx.AsyncClient) -> None:
    node = await rig.node()
    await rig.start(node, await rig.node())
    await node.stop_listening()
    await rig.until_node("n1", "offline")
    rig.clock.advance(5.0)
    picture = await pictured(rig, http)
    trouble = next(one for one in picture["troubles"] if one["code"] == "node_offline")
    assert trouble["node"] == "n1"
    assert trouble["text"]["en"].startswith("Node n1 has been offline for")
    assert "Last error" in trouble["text"]["en"]


async def test_nothing_of_anyone_is_in_it(rig: Rig, http: httpx.AsyncClient) -> None:
    node = await rig.node(slots=1)
    await rig.start(node)
    private = {"x-request-id": "id-of-alice", "x-forebay-user": "alice@private"}
    await rig.ask(headers=private, user="alice@private", prompt="words of alice")
    await node.next_call()
    looker = await look(rig, http)
    _, hello = await looker.next()
    told = msgspec.json.encode([hello, await looker.snapshot()]).decode()
    assert "alice" not in told
    assert "127.0.0.1" not in told


async def test_with_keys_a_key_is_needed_and_only_an_admin_is_called_one(
    rig: Rig, http: httpx.AsyncClient
) -> None:
    await rig.start(await rig.node(), **KEYED)
    assert (await look(rig, http)).answer.status_code == 401
    for secret, admin in ((SECRET, True), (SECRET + "2", False)):
        _, hello = await (await look(rig, http, authorization=f"Bearer {secret}")).next()
        assert (hello["admin"], hello["keys"]) == (admin, True)
        assert SECRET not in str(hello)


async def test_public_status_lets_anyone_look_but_not_touch(
    rig: Rig, http: httpx.AsyncClient
) -> None:
    await rig.start(await rig.node(), **KEYED, server={"public_status": True})
    _, hello = await (await look(rig, http)).next()
    assert hello["admin"] is False


async def test_there_are_only_so_many_lookers_and_one_that_leaves_makes_room(
    rig: Rig, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard, "PAGE_STREAMS", PAGE_STREAMS._replace(places=1))
    await rig.start(await rig.node())
    first = await look(rig, http)
    await first.next()
    refused = (await look(rig, http)).answer
    assert refused.status_code == 503
    await refused.aread()
    assert "too_many_connections" in refused.text
    await first.answer.aclose()
    for _ in range(2000):
        if not rig.gateway.parts.dashboard_feed.subscribers:
            break
        await rig.queue()  # until the loop has seen that it left
    await (await look(rig, http)).next()


async def test_a_slow_looker_gets_the_newest_picture_not_all_of_them(
    rig: Rig, http: httpx.AsyncClient
) -> None:
    await rig.start(await rig.node())
    watcher = rig.gateway.parts.dashboard_feed
    follower = watcher.subscribe(admin=False, keys=False)
    with follower:
        hello = await follower.next()
        assert hello is not None
        assert b"event: hello" in hello
        rig.clock.advance(100.0)
        frame = await follower.next()
        assert frame is not None
        assert b'"uptime_seconds":100.0' in frame
        waiting = asyncio.ensure_future(follower.next())
        await asyncio.sleep(0)
        assert not waiting.done()
        rig.clock.advance(INTERVAL_S)
        assert await waiting is not None


async def test_when_the_gateway_stops_lookers_are_let_go(rig: Rig, http: httpx.AsyncClient) -> None:
    await rig.start(await rig.node())
    looker = await look(rig, http)
    await looker.next()
    await rig.gateway.stop(0.0)
    left = [line async for line in looker.lines if line]
    assert all(line.startswith(("event: ", "data: ")) for line in left), "ended, not broken off"


async def test_without_lookers_the_time_line_still_grows_and_nothing_is_drawn(rig: Rig) -> None:
    await rig.start(await rig.node())
    rig.clock.advance(10.0)
    assert rig.gateway.parts.dashboard_feed.frame == b""
    assert len(rig.gateway.parts.dashboard_feed._history._samples) == 10


async def test_a_newcomer_sees_at_once_and_the_others_are_not_told_because_of_it(rig: Rig) -> None:
    await rig.start(await rig.node())
    watcher = rig.gateway.parts.dashboard_feed
    with watcher.subscribe(admin=False, keys=False) as first:
        assert await first.next()
        assert await first.next()
        waiting = asyncio.ensure_future(first.next())
        for _ in range(50):
            with watcher.subscribe(admin=False, keys=False) as newcomer:
                assert b"event: hello" in (await newcomer.next() or b"")
                assert b"event: snapshot" in (await newcomer.next() or b"")
        assert not waiting.done()
        rig.clock.advance(INTERVAL_S)
        assert await waiting


async def test_whoever_asks_only_for_the_head_holds_no_place(
    rig: Rig, http: httpx.AsyncClient
) -> None:
    await rig.start(await rig.node())
    url = f"http://127.0.0.1:{rig.gateway.port}/events"
    for _ in range(3):  # on one connection, which must stay good for more
        answer = await http.head(url)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
    assert rig.gateway.parts.dashboard_feed.subscribers == 0


async def test_a_key_that_is_revoked_sees_no_more(rig: Rig, http: httpx.AsyncClient) -> None:
    await rig.start(await rig.node(), **KEYED)
    revoked = await look(rig, http, authorization=f"Bearer {SECRET}2")
    staying = await look(rig, http, authorization=f"Bearer {SECRET}")
    for looker in (revoked, staying):
        await looker.next()
        await looker.snapshot()
    rig.given["keys"] = KEYS[:1]
    await rig.gateway.parts.live.reload()
    rig.clock.advance(INTERVAL_S)
    assert await staying.snapshot()
    async with asyncio.timeout(LIMIT_S):
        assert [line async for line in revoked.lines if line] == []


async def test_a_newcomer_waits_for_nothing_while_a_slot_is_free(
    rig: Rig, http: httpx.AsyncClient
) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.measure(node, 8.0)
    looker = await look(rig, http)
    await looker.next()
    (model, *_) = (await looker.snapshot())["models"]
    assert (model["wait_p50_seconds"], model["wait_p90_seconds"]) == (0.0, 0.0)
    await rig.run(node)
    rig.clock.advance(INTERVAL_S)
    (model, *_) = (await looker.snapshot())["models"]
    assert model["wait_p50_seconds"] > 0
    backend = rig.gateway.parts.nodes.get("n1")
    assert backend is not None
    backend.drain()
    rig.clock.advance(INTERVAL_S)
    (model, *_) = (await looker.snapshot())["models"]
    assert (model["slots"], model["wait_p50_seconds"]) == (0, None)


# -- the files


async def test_the_page_and_its_files_are_served_with_a_strict_policy(
    rig: Rig, http: httpx.AsyncClient
) -> None:
    await rig.start(await rig.node())
    base = f"http://127.0.0.1:{rig.gateway.port}"
    for path in ("/", *(f"/dashboard/{name}" for name in page_files().by_name)):
        answer = await http.get(base + path)
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = await http.get(base + path, headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert answer.headers["cache-control"] == "no-cache"


async def test_what_the_page_loads_is_kept_until_a_file_of_it_changes(
    rig: Rig, http: httpx.AsyncClient
) -> None:
    await rig.start(await rig.node())
    base = f"http://127.0.0.1:{rig.gateway.port}"
    page = (await http.get(base)).text
    loaded = re.findall(r'(?:href|src)="(/dashboard/[^"]+)"', page)
    assert len(loaded) == 4
    folder = loaded[0].rpartition("/")[0]
    assert {path.rpartition("/")[0] for path in loaded} == {folder}
    for name, file in page_files().by_name.items():
        answer = await http.get(f"{base}{folder}/{name}")
        assert (answer.status_code, answer.content) == (200, file.content)
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    older = await http.get(f"{base}/dashboard/0123456789abcdef/app.js")
    assert (older.status_code, older.headers["cache-control"]) == (200, "no-cache")


@pytest.mark.parametrize(
    "path",
    [
        "/dashboard/nothing.js",
        "/dashboard/..%2ffiles.py",
        "/dashboard/../files.py",
        f"/dashboard/{page_files().edition}/nothing.js",
        f"/dashboard/{page_files().edition}/../files.py",
    ],
)
async def test_nothing_but_the_page_can_be_read(
    rig: Rig, http: httpx.AsyncClient, path: str
) -> None:
    await rig.start(await rig.node())
    client = await rig.client()
    await client.send(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    assert (await client.reply()).status == 404


async def test_the_page_needs_no_key_but_our_own_host(rig: Rig, http: httpx.AsyncClient) -> None:
    keys = [{"name": "a", "key_env": "A"}]
    await rig.start(await rig.node(), keys=keys, environ={"A": SECRET})
    url = f"http://127.0.0.1:{rig.gateway.port}/"
    assert (await http.get(url)).status_code == 200
    assert (await http.get(url, headers={"host": "evil.example"})).status_code == 403


async def test_while_someone_looks_the_gpu_is_read_every_second(
    rig: Rig, http: httpx.AsyncClient
) -> None:
    node = SimNode(SimOptions(models=("a@6",), slots=2, vram_gb=8.0))
    await node.start()
    rig.stack.push_async_callback(node.stop)
    await rig.start()
    rig.gateway.parts.nodes.add(NodeSettings(name="sim", url=node.url, kind="sim"))
    await rig.until_node("sim", "online")
    looker = await look(rig, http)
    await looker.next()
    assert (await looker.snapshot())["nodes"][0]["gpu_load"] == 0.0
    backend = rig.gateway.parts.nodes.get("sim")
    assert backend is not None
    with node.engine.slot("a"):
        rig.clock.advance(1.0)
        for _ in range(2000):
            if backend.gpu_load:
                break
            await rig.queue()  # the answer of the node is under way
        await looker.snapshot()
        rig.clock.advance(INTERVAL_S)
        (shown,) = (await looker.snapshot())["nodes"]
    assert shown["gpu_load"] == 0.5
    assert (shown["vram_used_bytes"], shown["vram_total_bytes"]) == (6 << 30, 8 << 30)
