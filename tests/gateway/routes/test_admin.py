"""Operators: who may, and what nodes do that come, go, drain and resume while all goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ..conftest import OK
from ..hot.test_users_and_keys import A, key, start

if TYPE_CHECKING:
    from ..conftest import Rig

ROUTES = [
    ("GET", "/admin/nodes"),
    ("POST", "/admin/nodes"),
    ("DELETE", "/admin/nodes/n1"),
    ("POST", "/admin/nodes/n1/drain"),
    ("POST", "/admin/nodes/n1/resume"),
    ("POST", "/admin/reload"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_with_keys_only_an_admin_s_opens_these(rig: Rig, method: str, path: str) -> None:
    await start(rig, await rig.node(), keys=[key("a")])
    client = await rig.client()
    await client.request(method, path)
    assert (await client.reply()).json["error"]["code"] == "unauthorized"
    reply = await rig.get(path, A, method)
    assert (reply.status, reply.json["error"]["code"]) == (403, "forbidden")
    assert [node["state"] for node in (await rig.get("/admin/nodes")).json["data"]] == ["online"]


async def test_without_keys_only_a_loopback_host_is_let_in(rig: Rig) -> None:
    await rig.start(await rig.node(), server={"host": "0.0.0.0"})
    reply = await rig.get("/admin/nodes", {"Host": "gateway.test"})
    assert (reply.status, reply.json["error"]["code"]) == (403, "forbidden")
    assert (await rig.get("/admin/nodes", {"Host": "localhost"})).status == 200
    assert (await rig.get("/v1/models", {"Host": "gateway.test"})).status == 200


async def test_only_the_hosts_that_are_allowed_are_answered(rig: Rig) -> None:
    await rig.start(await rig.node(), server={"allowed_hosts": ["gateway.test"]})
    assert (await rig.get("/health", {"Host": "gateway.test:7800"})).status == 200
    assert (await rig.get("/health", {"Host": "GATEWAY.test"})).status == 200
    assert (await rig.get("/health", {"Host": "localhost"})).status == 403


async def test_nodes_are_listed_with_all_that_is_known_of_them(rig: Rig) -> None:
    node = await rig.node(slots=3)
    await rig.start(node)
    await rig.run(node)
    [seen] = (await rig.get("/admin/nodes")).json["data"]
    assert (seen["name"], seen["url"], seen["kind"]) == ("n1", node.url, "llama-cpp")
    assert (seen["state"], seen["slots"], seen["in_flight"]) == ("online", 3, 1)
    assert (seen["models"], seen["families"]) == (["m"], ["openai", "anthropic"])


async def test_a_node_that_is_added_serves_at_once_what_waits(rig: Rig) -> None:
    first, second = await rig.node(), await rig.node()
    await rig.start(first)
    await rig.run(first)
    [waiter] = await rig.line_up(1)
    body = {"name": "new", "url": second.url}
    reply = await rig.get("/admin/nodes", method="POST", body=body)
    assert (reply.status, reply.json["name"]) == (201, "new")
    await (await second.next_call()).answer(OK)
    assert (await waiter.reply()).headers["x-forebay-node"] == "new"


async def test_a_node_may_be_added_without_a_name(rig: Rig) -> None:
    node = await rig.node()
    await rig.start()
    reply = await rig.get("/admin/nodes", method="POST", body={"url": node.url})
    assert reply.status == 201
    await rig.until_node(reply.json["name"], "online")
    await rig.run(node)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", "body"),
        (b"[]", "body"),
        ({"name": "x"}, "url"),
        ({"name": "x", "url": "ftp://x"}, "url"),
        ({"name": "x", "url": "http://x:1", "slots": -1}, "slots"),
        ({"name": "x", "url": "http://x:1", "slotz": 1}, "slotz"),
        ({"name": "x", "url": "http://x:1", "api_key_env": "HOME"}, "api_key_env"),
    ],
)
async def test_a_node_that_is_described_badly_is_refused(rig: Rig, body: Any, param: str) -> None:
    await rig.start(await rig.node())
    reply = await rig.get("/admin/nodes", method="POST", body=body)
    assert (reply.status, reply.json["error"]["code"]) == (400, "invalid_request")
    assert param in reply.json["error"]["param"]
    assert len((await rig.get("/admin/nodes")).json["data"]) == 1


async def test_a_name_that_is_taken_is_a_conflict(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    body = {"name": "n1", "url": node.url}
    reply = await rig.get("/admin/nodes", method="POST", body=body)
    assert (reply.status, reply.json["error"]["code"]) == (409, "conflict")


async def test_a_node_that_is_removed_finishes_what_it_runs_and_gets_nothing_new(
    rig: Rig,
) -> None:
    first, second = await rig.node(), await rig.node()
    await rig.start(first, second)
    client, call = await rig.run(first)
    assert (await rig.get("/admin/nodes/n1", method="DELETE")).status == 204
    assert [node["name"] for node in (await rig.get("/admin/nodes")).json["data"]] == ["n2"]
    await rig.run(second)
    [waiter] = await rig.line_up(1)
    await call.answer(OK)
    assert (await client.reply()).status == 200
    assert (await rig.queue())["waiting"] == 1
    waiter.close()


async def test_with_its_last_node_a_model_is_unknown(rig: Rig) -> None:
    await rig.start(await rig.node())
    await rig.get("/admin/nodes/n1", method="DELETE")
    assert (await (await rig.ask()).reply()).json["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("what", ["", "/drain", "/resume"])
async def test_a_node_that_is_not_there_is_not_found(rig: Rig, what: str) -> None:
    await rig.start(await rig.node())
    method = "POST" if what else "DELETE"
    reply = await rig.get(f"/admin/nodes/nobody{what}", method=method)
    assert (reply.status, reply.json["error"]["code"]) == (404, "not_found")


async def test_a_node_that_drains_finishes_and_takes_nothing_new_until_it_resumes(
    rig: Rig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node)
    [waiter] = await rig.line_up(1)
    reply = await rig.get("/admin/nodes/n1/drain", method="POST")
    assert (reply.status, reply.json["state"]) == (200, "draining")
    await call.answer(OK)
    assert (await client.reply()).status == 200
    seen = await rig.queue()
    assert (seen["waiting"], seen["processing"]) == (1, 0)
    reply = await rig.get("/admin/nodes/n1/resume", method="POST")
    assert (reply.status, reply.json["state"]) == (200, "online")
    await (await node.next_call()).answer(OK)
    assert (await waiter.reply()).status == 200


async def test_requests_go_to_others_while_a_node_drains(rig: Rig) -> None:
    first, second = await rig.node(), await rig.node()
    await rig.start(first, second)
    await rig.get("/admin/nodes/n1/drain", method="POST")
    for _ in range(2):
        client, call = await rig.run(second)
        await call.answer(OK)
        assert (await client.reply()).status == 200


async def test_a_drained_node_stays_drained_whatever_its_probes_say(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.get("/admin/nodes/n1/drain", method="POST")
    probes = node.probes
    rig.clock.advance(10.0)
    await node.probed(probes + 3)
    [seen] = (await rig.get("/admin/nodes")).json["data"]
    assert seen["state"] == "draining"
    rig.clock.advance(20.0)
    assert (await (await rig.ask()).reply()).json["error"]["code"] == "no_node"
