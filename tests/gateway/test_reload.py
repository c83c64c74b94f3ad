"""Reading the settings anew: what applies, what is refused, and what becomes of those who wait."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from forebay.settings import Settings, SettingsError, SettingsProblem

from .conftest import OK
from .hot.test_users_and_keys import SECRETS, A, B, key, start

if TYPE_CHECKING:
    from forebay.testing import Reply

    from .conftest import Rig

LIMIT_S = 30.0  # only turns a hang into a failure


async def reload(rig: Rig, **changes: Any) -> Reply:
    """Change the settings as given and have them read anew."""
    rig.given |= changes
    return await rig.get("/admin/reload", method="POST")


async def test_limits_of_the_queue_apply_to_what_comes(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.run(node)
    await rig.line_up(2)
    reply = await reload(rig, queue={"max_size": 1, "full_status": 503})
    assert reply.status == 200
    assert set(reply.json["changed"]) == {"queue.max_size", "queue.full_status"}
    assert (await (await rig.ask()).reply()).status == 503
    seen = await rig.queue()
    assert (seen["waiting"], seen["max_size"]) == (2, 1)  # a lower bound drains


async def test_a_new_limit_on_waiting_holds_for_newcomers(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.run(node)
    await reload(rig, queue={"max_wait_seconds": 5.0, "timeout_status": 408})
    [waiter] = await rig.line_up(1)
    rig.clock.advance(5.0)
    assert (await waiter.reply()).status == 408


async def test_limits_on_running_and_retries_apply(rig: Rig) -> None:
    first, second = await rig.node(), await rig.node()
    await rig.start(first, second)
    reply = await reload(rig, queue={"run_seconds": 5.0}, retry={"attempts": 1})
    assert set(reply.json["changed"]) == {"queue.run_seconds", "retry.attempts"}
    client, call = await rig.run(first)
    call.reset()
    assert (await client.reply()).json["error"]["code"] == "node_failed"
    client, _ = await rig.run(second)
    rig.clock.advance(5.0)
    assert (await client.reply()).json["error"]["code"] == "run_timeout"


async def test_a_reload_that_leaves_a_limit_alone_does_not_start_it_anew(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, _ = await rig.run(node)
    rig.clock.advance(500.0)
    await reload(rig, queue={"max_size": 5})
    rig.clock.advance(100.0)
    assert (await client.reply()).json["error"]["code"] == "run_timeout"


async def test_aliases_and_fallbacks_apply(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    assert (await (await rig.ask(model="gpt")).reply()).status == 404
    reply = await reload(rig, models={"aliases": {"gpt": "m"}})
    assert reply.json["changed"] == ["models.aliases"]
    _, call = await rig.run(node, model="gpt")
    assert call.json["model"] == "m"


async def test_nodes_come_go_and_change(rig: Rig) -> None:
    old, new = await rig.node(), await rig.node(models=("n",))
    await rig.start(old)
    client, call = await rig.run(old)
    reply = await reload(rig, nodes=[{"name": "n9", "url": new.url}])
    assert set(reply.json["changed"]) == {"nodes.n1", "nodes.n9"}
    await call.answer(OK)
    assert (await client.reply()).status == 200  # what ran was left alone
    await rig.until_node("n9", "online")
    await rig.run(new, model="n")
    assert (await (await rig.ask()).reply()).json["error"]["code"] == "model_not_found"
    reply = await reload(rig, nodes=[{"name": "n9", "url": new.url, "slots": 2}])
    assert reply.json["changed"] == ["nodes.n9"]
    await rig.until_node("n9", "online")
    await rig.run(new, model="n")
    assert (await rig.queue())["processing"] == 2


async def test_a_change_that_needs_a_restart_is_refused_whole_and_named(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    server = {"port": 0, "body_max_bytes": 5}
    reply = await reload(rig, server=server, queue={"max_size": 1})
    assert (reply.status, reply.json["error"]["code"]) == (400, "invalid_request")
    assert "server.body_max_bytes" in reply.json["error"]["message"]
    assert "restart" in reply.json["error"]["message"]
    assert (await rig.queue())["max_size"] == 100
    await rig.run(node, padding="more than five bytes")


@pytest.mark.parametrize(
    "queue",
    [{"fairness": "fifo"}, {"priority": "weighted"}, {"when_full": "displace"}],
    ids=lambda queue: next(iter(queue)),
)
async def test_the_order_of_the_queue_needs_a_restart(rig: Rig, queue: dict[str, Any]) -> None:
    await rig.start(await rig.node())
    reply = await reload(rig, queue=queue)
    assert reply.status == 400
    assert f"queue.{next(iter(queue))}" in reply.json["error"]["message"]


async def test_a_bad_file_keeps_the_old_settings_and_says_why(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    await rig.start(node)

    def broken() -> Settings:
        raise SettingsError([SettingsProblem("queue.max_sise", "is not a setting", "max_size")])

    monkeypatch.setattr(rig.gateway.parts.live, "_read", broken)
    reply = await rig.get("/admin/reload", method="POST")
    assert (reply.status, reply.json["error"]["code"]) == (400, "invalid_request")
    assert "queue.max_sise" in reply.json["error"]["message"]
    await rig.run(node)


async def test_settings_that_are_slow_to_read_hold_up_nobody_and_are_applied_in_turn(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    await rig.start(node)
    begun, may_end, sizes = threading.Event(), threading.Event(), iter((1, 2))

    def slow() -> Settings:
        size = next(sizes)
        begun.set()
        assert may_end.wait(LIMIT_S)
        return Settings(**{**rig.given, "queue": {"max_size": size}})

    monkeypatch.setattr(rig.gateway.parts.live, "_read", slow)
    clients = [await rig.client() for _ in range(2)]
    for client in clients:
        await client.post("/admin/reload", {})
    await asyncio.to_thread(begun.wait)
    _, call = await rig.run(node)
    assert (await rig.queue())["max_size"] == 100
    may_end.set()
    assert [(await client.reply()).status for client in clients] == [200, 200]
    assert (await rig.queue())["max_size"] == 2
    await call.answer(OK)


async def test_a_secret_that_is_missing_changes_nothing(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    wants = [{"name": "n1", "url": node.url, "api_key_env": "NOT_SET"}]
    reply = await reload(rig, nodes=wants, queue={"max_size": 1})
    assert reply.status == 400
    assert "NOT_SET" in reply.json["error"]["message"]
    assert (await rig.queue())["max_size"] == 100
    await rig.run(node)


async def test_waiters_of_a_revoked_key_are_turned_away_and_others_are_not(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a"), key("b")])
    running, call = await rig.run(node, headers=A)
    [gone] = await rig.line_up(1, headers=A)
    [stays] = await rig.line_up(1, headers=B)
    reply = await reload(rig, keys=[key("b"), key("admin", admin=True)])
    assert reply.json["changed"] == ["keys.a"]
    refused = await gone.reply()
    assert (refused.status, refused.json["error"]["code"]) == (401, "unauthorized")
    assert refused.headers["x-should-retry"] == "false"
    await call.answer(OK)
    assert (await running.reply()).status == 200  # what runs may finish
    await (await node.next_call()).answer(OK)
    assert (await stays.reply()).status == 200
    assert (await (await rig.ask(headers=A)).reply()).status == 401


async def test_a_waiter_that_ran_before_and_returned_is_turned_away_as_well(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a")])
    client, call = await rig.run(node, headers=A)
    await call.answer({"error": "busy"}, 429, {"retry-after": "30"})
    await rig.wait_until("waiting", 1)
    await reload(rig, keys=[key("admin", admin=True)])
    assert (await client.reply()).status == 401


async def test_a_key_with_another_secret_is_revoked_and_one_with_other_caps_is_not(
    rig: Rig,
) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a"), key("b")])
    await rig.run(node, headers=A)
    [first] = await rig.line_up(1, headers=A)
    [second] = await rig.line_up(1, headers=B)
    changed = {"name": "a", "key_env": "KEY_C"}
    rig.gateway.parts.live._environ = {**SECRETS, "KEY_C": "sk-secret-c"}
    await reload(rig, keys=[changed, key("b", max_running=1), key("admin", admin=True)])
    assert (await first.reply()).status == 401
    assert (await rig.queue())["waiting"] == 1
    second.close()


async def test_a_connection_does_not_remember_a_key_that_was_revoked(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a")])
    client, call = await rig.run(node, headers=A)
    await call.answer(OK)
    await client.reply()
    await reload(rig, keys=[key("admin", admin=True)])
    await client.post("/v1/chat/completions", {"model": "m", "messages": []}, A)
    assert (await client.reply()).status == 401


async def test_nothing_changed_is_nothing_changed(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, call = await rig.run(node)
    assert (await reload(rig)).json == {"changed": []}
    await call.answer(OK)
