"""Who is asking, whom it counts for, and what a key may and may not do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from forebay.settings import digest_of

from ..conftest import CHAT, OK

if TYPE_CHECKING:
    from ..conftest import Rig

SECRETS = {"KEY_A": "sk-secret-a", "KEY_B": "sk-secret-b", "KEY_ADMIN": "sk-secret-admin"}
A, B, ADMIN = ({"Authorization": f"Bearer {secret}"} for secret in SECRETS.values())


def key(name: str, **more: Any) -> dict[str, Any]:
    """Return a key whose text is in the variable of its name."""
    return {"name": name, "key_env": f"KEY_{name.upper()}", **more}


async def start(rig: Rig, *nodes: Any, keys: list[dict[str, Any]], **settings: Any) -> None:
    """Start a gateway with these keys and an admin's, with which the rig then looks in."""
    rig.headers = ADMIN
    all_keys = [*keys, key("admin", admin=True)]
    await rig.start(*nodes, keys=all_keys, environ=SECRETS, **settings)


async def are_one(rig: Rig, node: Any, first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Say whether two kinds of requests count for the same user.

    Three of the first and then one of the second have to wait. Those of one user run in order of
    arrival, 1 1 1 2; two users take turns, so that the second does not have to wait to the end.
    """
    _, call = await rig.run(node, headers=first.get("headers", {}), user="someone-else")
    for _ in range(3):
        await rig.line_up(1, n="1", **first)
    await rig.line_up(1, n="2", **second)
    order = ""
    for _ in range(4):
        await call.answer(OK)
        call = await node.next_call()
        order += call.json["n"]
    await call.answer(OK)
    await rig.wait_until("processing", 0)
    return order == "1112"


async def test_without_keys_the_user_is_the_body_s_else_the_header_s_else_the_address(
    rig: Rig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    header = {"headers": {"X-Forebay-User": "b"}}
    assert not await are_one(rig, node, {"user": "a"}, {"user": "b"})
    assert await are_one(rig, node, {"user": "b"}, header)
    assert await are_one(rig, node, {"user": "a", **header}, {"user": "a"})
    assert await are_one(rig, node, {}, {})
    assert not await are_one(rig, node, {}, header)
    assert await are_one(rig, node, {"user": "127.0.0.1"}, {})


async def test_with_a_key_the_user_is_the_key_s_whatever_the_request_says(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a"), key("b", user="a")])
    say_b = {"headers": {**A, "X-Forebay-User": "b"}, "user": "b"}
    assert await are_one(rig, node, {"headers": A}, say_b)
    assert await are_one(rig, node, {"headers": A}, {"headers": B})
    assert not await are_one(rig, node, {"headers": A}, {"headers": ADMIN})


async def test_a_key_that_is_trusted_names_its_users(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a", trust_user=True)])
    one, two = {"headers": A, "user": "u1"}, {"headers": A, "user": "u2"}
    header = {"headers": {**A, "X-Forebay-User": "u1"}}
    assert not await are_one(rig, node, one, two)
    assert await are_one(rig, node, one, header)
    assert await are_one(rig, node, {"headers": A}, {"headers": A})


async def test_anthropic_names_the_user_in_its_metadata(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    path = {"path": "/v1/messages"}
    one = {"metadata": {"user_id": "u1"}, **path}
    two = {"metadata": {"user_id": "u2"}, **path}
    assert not await are_one(rig, node, one, two)


async def test_a_trusted_proxy_says_who_the_client_is(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, server={"trusted_proxies": ["127.0.0.0/8"]})
    one = {"headers": {"X-Forwarded-For": "10.0.0.1"}}
    two = {"headers": {"X-Forwarded-For": "10.0.0.2"}}
    assert not await are_one(rig, node, one, two)


async def test_any_other_proxy_is_not_believed(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    one = {"headers": {"X-Forwarded-For": "10.0.0.1"}}
    two = {"headers": {"X-Forwarded-For": "10.0.0.2"}}
    assert await are_one(rig, node, one, two)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer "}, {"x-api-key": "wrong"}])
async def test_no_key_or_a_bad_one_is_unauthorized(rig: Rig, headers: dict[str, str]) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a"), key("b")])
    reply = await (await rig.ask(headers=headers)).reply()
    assert (reply.status, reply.json["error"]["code"]) == (401, "unauthorized")
    assert reply.headers["www-authenticate"] == "Bearer"
    assert reply.headers["x-should-retry"] == "false"
    assert node.calls == []


@pytest.mark.parametrize("path", ["/v1/models", "/api/tags", "/v1/queue", "/metrics"])
async def test_with_keys_looking_in_needs_one(rig: Rig, path: str) -> None:
    await start(rig, await rig.node(), keys=[key("a")])
    client = await rig.client()
    await client.get(path)
    assert (await client.reply()).status == 401
    assert (await rig.get(path, A)).status == 200


@pytest.mark.parametrize("path", ["/health", "/ready", "/capabilities", "/openapi.json", "/"])
async def test_what_tells_nothing_needs_no_key(rig: Rig, path: str) -> None:
    await start(rig, await rig.node(), keys=[key("a")])
    client = await rig.client()
    await client.get(path)
    assert (await client.reply()).status == 200


async def test_a_public_status_needs_no_key(rig: Rig) -> None:
    await start(rig, await rig.node(), keys=[key("a")], server={"public_status": True})
    client = await rig.client()
    for path, status in (("/v1/queue", 200), ("/metrics", 200), ("/v1/models", 401)):
        await client.get(path)
        assert (await client.reply()).status == status


@pytest.mark.parametrize(
    "headers", [A, {"x-api-key": "sk-secret-a"}, {"authorization": "bearer sk-secret-a"}]
)
async def test_a_gateway_key_opens_the_door_and_never_reaches_a_node(
    rig: Rig, headers: dict[str, str]
) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a")])
    client, call = await rig.run(node, headers=headers)
    assert b"sk-secret" not in call.raw_head
    await call.answer(OK)
    assert (await client.reply()).status == 200


async def test_a_key_may_be_known_by_its_digest_alone(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, keys=[{"name": "a", "key_sha256": digest_of("sk-secret-a")}])
    await rig.run(node, headers=A)


async def test_without_keys_the_caller_s_own_credentials_pass(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, call = await rig.run(node, headers={"Authorization": "Bearer theirs", "x-api-key": "k"})
    assert (call.headers["authorization"], call.headers["x-api-key"]) == ("Bearer theirs", "k")


@pytest.mark.parametrize("keys", [[], [key("a")]])
async def test_a_node_s_own_key_replaces_the_caller_s(rig: Rig, keys: list[Any]) -> None:
    node = await rig.node()
    await rig.start(
        node,
        nodes=[{"name": "n1", "url": node.url, "api_key_env": "NODE_KEY"}],
        environ={**SECRETS, "NODE_KEY": "sk-node"},
        keys=keys,
    )
    _, call = await rig.run(node, headers=A)
    assert call.headers["authorization"] == "Bearer sk-node"
    assert b"sk-secret-a" not in call.raw_head
    assert node.probe_requests[-1].headers["authorization"] == "Bearer sk-node"


async def test_a_key_runs_only_its_own_models(rig: Rig) -> None:
    node = await rig.node(models=("m", "other"), slots=2)
    await start(
        rig, node, keys=[key("a", models=["m"])], models={"aliases": {"nick": "m", "no": "other"}}
    )
    await rig.run(node, headers=A)
    await rig.run(node, headers=A, model="nick")
    for model in ("other", "no", "nowhere"):
        reply = await (await rig.ask(headers=A, model=model)).reply()
        assert (reply.status, reply.json["error"]["code"]) == (403, "forbidden")
        assert reply.headers["x-should-retry"] == "false"
    listed = (await rig.get("/v1/models", A)).json["data"]
    assert [model["id"] for model in listed] == ["m", "nick"]


async def test_a_key_cannot_promote_itself_beyond_its_cap(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a", max_priority="low")])
    await rig.run(node, headers=A)
    await rig.line_up(1, headers={**A, "X-Forebay-Priority": "high"})
    await rig.line_up(1, headers=A, service_tier="priority")
    await rig.line_up(1, headers=A)
    assert (await rig.queue())["by_priority"] == {"high": 0, "normal": 0, "low": 3}


async def test_a_key_has_only_so_much_under_way_at_once(rig: Rig) -> None:
    node = await rig.node(slots=4)
    await start(rig, node, keys=[key("a", max_running=2), key("b")])
    client, call = await rig.run(node, headers=A)
    await rig.run(node, headers=A)
    reply = await (await rig.ask(headers=A)).reply()
    assert (reply.status, reply.json["error"]["code"]) == (429, "user_queue_full")
    assert reply.headers["x-should-retry"] == "true"
    await rig.run(node, headers=B)
    await call.answer(OK)
    await client.reply()
    await rig.run(node, headers=A)


async def test_a_heavier_key_gets_more_turns(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a", weight=2.0), key("b")])
    _, call = await rig.run(node, headers=ADMIN)
    for name, headers in (("a", A), ("b", B)):
        await rig.line_up(6, headers=headers, n=name)
    order = ""
    for _ in range(6):
        await call.answer(OK)
        call = await node.next_call()
        order += call.json["n"]
    assert (order.count("a"), order.count("b")) == (4, 2)


async def test_keys_are_looked_at_on_every_request_of_a_connection(rig: Rig) -> None:
    node = await rig.node(slots=3)
    await start(rig, node, keys=[key("a"), key("b")])
    client = await rig.client()
    for headers, status in ((A, 200), ({}, 401), (B, 200)):
        await client.post(CHAT, {"model": "m"}, headers)
        if status == 200:
            await (await node.next_call()).answer(OK)
        assert (await client.reply()).status == status


async def test_every_line_of_forwarded_for_counts(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, server={"trusted_proxies": ["127.0.0.1/32"]})
    client = await rig.client()
    body = b'{"model":"m"}'
    await client.send(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        b"X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 9.9.9.9\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    call = await node.next_call()
    (exchange,) = rig.gateway.parts.relay.exchanges.values()
    assert exchange.call.arrival.user == "9.9.9.9"
    await call.answer(OK)


async def test_a_wrong_key_is_refused_before_a_large_body_is_sent(rig: Rig) -> None:
    await rig.start(
        await rig.node(),
        keys=[{"name": "k", "key_env": "KEY", "user": "u"}],
        environ={"KEY": "right"},
    )
    client = await rig.client()
    await client.send(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n"
        b"Content-Length: 30000000\r\nExpect: 100-continue\r\n\r\n"
    )
    assert (await client.head()).status == 401


async def test_a_page_that_cors_allows_is_no_admin(rig: Rig) -> None:
    await rig.start(await rig.node(), server={"cors_origins": ["http://app.test"]})
    client = await rig.client()
    await client.get("/admin/nodes", {"Origin": "http://app.test"})
    assert (await client.reply()).status == 403


async def test_a_revoked_key_s_request_does_not_start_again_elsewhere(rig: Rig) -> None:
    nodes = [await rig.node(), await rig.node()]
    keys = [{"name": "k", "key_env": "KEY", "user": "u"}, {"name": "b", "key_env": "B"}]
    environ = {"KEY": "secret", "B": "other"}
    gateway = await rig.start(*nodes, keys=keys, environ=environ)
    client = await rig.ask(headers={"Authorization": "Bearer secret"})
    call = await nodes[0].next_call()
    kept = gateway.parts.keys.named("b")
    assert kept is not None
    gateway.parts._change_keys([kept])
    call.reset()
    assert (await client.reply()).status == 401
    assert not nodes[1].calls
