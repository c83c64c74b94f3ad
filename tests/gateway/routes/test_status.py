"""Looking in: the whole queue, one request, health, readiness, the models there are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from forebay.build import BUILD

from ..conftest import OK
from ..hot.test_users_and_keys import A, B, key, start

if TYPE_CHECKING:
    from ..conftest import Rig

MINE = {"X-Request-Id": "mine"}


async def test_the_queue_is_shown_in_aggregates_only(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.measure(node, 4.0)
    _, call = await rig.run(node, user="alice", headers=MINE)
    [client] = await rig.line_up(1, user="alice")
    rig.clock.advance(3.0)
    await call.answer(OK)
    await node.next_call()
    await rig.line_up(1, headers={"X-Forebay-Priority": "high"}, prompt="secret words")
    seen = await rig.queue()
    assert seen == {
        "waiting": 1,
        "processing": 1,
        "max_size": 100,
        "average_wait_seconds": 1.0,  # 0, 0 and 3
        "average_service_seconds": 3.5,  # 4 and 3
        "by_priority": {"high": 1, "normal": 0, "low": 0},
        "processing_jobs": 0,
        "rejected_total": 0,
        "timeouts_total": 0,
        "served_total": 2,
    }
    client.close()


async def test_refusals_and_timeouts_are_counted(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_size": 1})
    await rig.run(node)
    [waiter] = await rig.line_up(1)
    assert (await (await rig.ask()).reply()).status == 429
    rig.clock.advance(60.0)
    await waiter.reply()
    seen = await rig.queue()
    assert (seen["rejected_total"], seen["timeouts_total"], seen["served_total"]) == (1, 1, 0)


@pytest.mark.parametrize(
    ("settings", "asked", "code"),
    [
        ({"max_size": 0}, {}, "queue_disabled"),
        ({"max_per_user": 1}, {}, "user_queue_full"),
        ({"stream": "reject"}, {"stream": True}, "stream_not_queued"),
    ],
)
async def test_whatever_is_refused_for_want_of_room_is_counted_as_rejected(
    rig: Rig, settings: dict[str, object], asked: dict[str, Any], code: str
) -> None:
    node = await rig.node()
    await rig.start(node, queue=settings)
    await rig.run(node)
    if code == "user_queue_full":
        await rig.line_up(1)
    assert (await (await rig.ask(**asked)).reply()).json["error"]["code"] == code
    assert (await rig.queue())["rejected_total"] == 1


async def test_what_is_refused_for_another_reason_is_not_counted_as_rejected(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.run(node)
    for asked, code in (
        ({"model": "nobody"}, "model_not_found"),
        ({"path": "/api/chat"}, "route_not_supported"),
        ({"headers": {"X-Forebay-Max-Wait": "0"}}, "deadline_unreachable"),
    ):
        said = (await (await rig.ask(**asked)).reply()).json
        assert (said["code"] if "code" in said else said["error"]["code"]) == code
    assert (await rig.queue())["rejected_total"] == 0
    assert 'forebay_queue_rejected_total{reason="model_not_found"} 1.0' in (
        (await rig.get("/metrics")).body.decode()
    )


async def test_a_waiting_request_is_described_with_the_reason_why_it_waits(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.measure(node, 10.0)
    await rig.run(node)
    await rig.line_up(1)
    await rig.line_up(1, headers=MINE)
    rig.clock.advance(2.0)
    seen = (await rig.get("/v1/queue/mine")).json
    assert (seen["state"], seen["position"], seen["waited_seconds"]) == ("waiting", 2, 2.0)
    assert seen["reason"] == "every slot that could serve it is taken"
    assert seen["reason_code"] == "busy"
    estimates = seen["estimated_wait_seconds"]
    assert set(estimates) == {"p50", "p90"}
    # 8 s left of the one that runs, and 10; and nobody has started for two seconds
    assert estimates["p90"] >= estimates["p50"] == pytest.approx(18.0, abs=0.5)
    assert seen["timeline"] == [
        {"seconds_ago": 2.0, "event": "arrived"},
        {"seconds_ago": 2.0, "event": "queued"},
    ]


async def test_a_running_request_is_described_with_its_way_so_far(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, call = await rig.run(node)
    await rig.line_up(1, headers=MINE)
    rig.clock.advance(2.0)
    await call.answer(OK)
    await node.next_call()
    rig.clock.advance(1.0)
    seen = (await rig.get("/v1/queue/mine")).json
    assert (seen["state"], seen["position"], seen["waited_seconds"]) == ("running", None, 2.0)
    assert seen["reason"] == "it is running"
    assert seen["estimated_wait_seconds"] == {"p50": None, "p90": None}
    assert seen["timeline"][-1] == {"seconds_ago": 1.0, "event": "started on n1"}


async def test_a_request_that_nothing_can_serve_now_says_so(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_wait_seconds": 1000.0})
    await rig.run(node)
    await rig.line_up(1, headers=MINE)
    await rig.get("/admin/nodes/n1/drain", method="POST")
    seen = (await rig.get("/v1/queue/mine")).json
    assert seen["reason"] == "no node that serves its model is up"


async def test_a_retry_is_seen_in_the_timeline(rig: Rig) -> None:
    first, second = await rig.node(), await rig.node()
    await rig.start(first, second)
    _, call = await rig.run(first, headers=MINE)
    call.reset()
    await second.next_call()
    seen = (await rig.get("/v1/queue/mine")).json
    events = [entry["event"] for entry in seen["timeline"]]
    assert events[0] == "arrived"
    assert events[-1] == "started on n2"
    assert any(event.startswith("n1 failed") for event in events)
    assert seen["attempt"] == 2


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_request_that_is_unknown_or_has_ended_is_not_found(rig: Rig, method: str) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, headers=MINE)
    await call.answer(OK)
    await client.reply()
    for name in ("mine", "never-was"):
        reply = await rig.get(f"/v1/queue/{name}", method=method)
        assert (reply.status, reply.json["error"]["code"]) == (404, "not_found")


async def test_deleting_a_waiting_request_frees_its_place_and_it_never_runs(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, call = await rig.run(node)
    [gone] = await rig.line_up(1, headers=MINE)
    [next_one] = await rig.line_up(1)
    reply = await rig.get("/v1/queue/mine", method="DELETE")
    assert (reply.status, reply.json) == (200, {"id": "mine", "state": "cancelled"})
    assert (await gone.reply()).status == 499
    await call.answer(OK)
    await (await node.next_call()).answer(OK)
    assert (await next_one.reply()).status == 200
    assert len(node.calls) == 2
    assert (await rig.get("/v1/queue/mine", method="DELETE")).status == 404


async def test_deleting_a_running_request_aborts_it_at_the_node(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, headers=MINE)
    await rig.get("/v1/queue/mine", method="DELETE")
    assert (await client.reply()).json["error"]["code"] == "cancelled"
    await call.gone()
    assert (await rig.queue())["processing"] == 0


async def test_deleting_a_stream_that_has_begun_ends_it_with_an_error(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, headers=MINE, stream=True)
    await call.start_stream()
    await call.chunk(b"data: 1\n\n")
    await client.head()
    await client.chunk()
    await rig.get("/v1/queue/mine", method="DELETE")
    last = await client.chunk()
    assert last is not None
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "cancelled"
    assert await client.chunk() is None
    await call.gone()


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_request_is_seen_by_its_own_user_and_by_an_admin_and_by_nobody_else(
    rig: Rig, method: str
) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a"), key("b")])
    await rig.run(node, headers=A)
    await rig.line_up(1, headers={**A, **MINE})
    client = await rig.client()
    await client.request(method, "/v1/queue/mine")
    assert (await client.reply()).status == 401
    assert (await rig.get("/v1/queue/mine", B, method)).status == 404
    assert (await rig.queue())["waiting"] == 1
    assert (await rig.get("/v1/queue/mine", A, "GET")).status == 200
    assert (await rig.get("/v1/queue/mine", A, method)).status == 200


async def test_two_keys_of_one_user_see_each_other_s_requests(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a", user="team"), key("b", user="team")])
    await rig.run(node, headers={**A, **MINE})
    assert (await rig.get("/v1/queue/mine", B)).status == 200


async def test_an_admin_sees_and_cancels_what_anyone_asked(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a")])
    client, _ = await rig.run(node, headers={**A, **MINE})
    assert (await rig.get("/v1/queue/mine")).json["state"] == "running"
    assert (await rig.get("/v1/queue/mine", method="DELETE")).status == 200
    assert (await client.reply()).status == 499


async def test_health_says_alive_and_never_touches_a_node(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    probes = node.probes
    reply = await rig.get("/health")
    assert (reply.status, reply.json["status"]) == (200, "ok")
    assert (node.probes, node.calls) == (probes, [])


async def test_a_gateway_is_ready_while_a_node_is_up_and_it_is_not_draining(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    assert (await rig.get("/ready")).json == {"status": "ready"}
    node.health = "error"
    await rig.until_node("n1", "offline")
    reply = await rig.get("/ready")
    assert (reply.status, reply.json["error"]["code"]) == (503, "no_node")
    assert "retry-after" in reply.headers
    node.health = "ok"
    await rig.until_node("n1", "online")
    await rig.gateway.drain()
    assert (await rig.get("/ready")).json["error"]["code"] == "shutting_down"
    assert (await rig.get("/health")).status == 200


async def test_capabilities_say_what_is_offered(rig: Rig) -> None:
    await rig.start(await rig.node(), queue={"max_size": 7})
    seen = (await rig.get("/capabilities")).json
    assert seen["build"] == BUILD
    assert "/v1/chat/completions" in seen["families"]["openai"]
    assert seen["families"]["anthropic"] == ["/v1/messages", "/v1/messages/count_tokens"]
    assert "/api/embed" in seen["families"]["ollama"]
    assert seen["priorities"] == ["high", "normal", "low"]
    assert seen["limits"]["queueMaxSize"] == 7


async def test_models_are_the_union_over_healthy_nodes_each_in_its_own_family(rig: Rig) -> None:
    llama, ollama = await rig.node(models=("a", "b")), await rig.node(models=("c",), kind="ollama")
    await rig.start(llama, ollama)
    listed = (await rig.get("/v1/models")).json
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["a", "b", "c"]
    tags = (await rig.get("/api/tags")).json["models"]
    assert [model["name"] for model in tags] == ["c"]
    anthropic = (await rig.get("/v1/models", {"anthropic-version": "2023-06-01"})).json
    assert [model["id"] for model in anthropic["data"]] == ["a", "b"]
    assert (await rig.get("/v1/models/a")).json["id"] == "a"
    ollama.health = "error"
    await rig.until_node("n2", "offline")
    assert [model["id"] for model in (await rig.get("/v1/models")).json["data"]] == ["a", "b"]
    assert (await rig.get("/v1/models/c")).status == 404


async def test_a_model_with_a_slash_in_its_name_is_found(rig: Rig) -> None:
    await rig.start(await rig.node(models=("org/model:7b",)))
    assert (await rig.get("/v1/models/org/model:7b")).json["id"] == "org/model:7b"


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/queue/a/b", "/admin", "/v1/chat"])
async def test_where_there_is_nothing_it_is_not_found(rig: Rig, path: str) -> None:
    await rig.start(await rig.node())
    reply = await rig.get(path)
    assert (reply.status, reply.json["error"]["code"]) == (404, "not_found")


async def test_a_hot_route_takes_nothing_but_post(rig: Rig) -> None:
    await rig.start(await rig.node())
    reply = await rig.get("/v1/chat/completions")
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert reply.json["error"]["code"] == "method_not_allowed"


async def test_the_page_and_the_description_are_there(rig: Rig) -> None:
    await rig.start(await rig.node())
    assert (await rig.get("/")).headers["content-type"].startswith("text/html")
    assert (await rig.get("/openapi.json")).json["openapi"].startswith("3.")
