"""`GET /v1/queue/requests`: who may see which requests, and what is said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import pytest

from forebay.core import actions
from forebay.gateway.routes import queue, request_list
from forebay.gateway.routes.request_list import RequestFilter

from ..conftest import OK
from ..fleet import fleet_rig
from ..hot.test_users_and_keys import ADMIN, A, B, key, start

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from forebay.api.queue import ListedRequest

    from ..conftest import Rig
    from ..fleet.fleet_rig import FleetRig

LIST = "/v1/queue/requests"


async def listed(rig: Rig, query: str = "", headers: Any = None) -> list[dict[str, Any]]:
    reply = await rig.get(f"{LIST}?{query}", headers)
    assert reply.status == 200, reply.body
    rows: list[dict[str, Any]] = reply.json["data"]
    return rows


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["id"] for row in rows]


async def line_up(rig: Rig, *names: str, **more: Any) -> None:
    """Have requests of these ids wait, a second apart."""
    for name in names:
        rig.clock.advance(1.0)
        await rig.line_up(1, headers={"X-Request-Id": name, **more.pop("headers", {})}, **more)


async def test_waiting_running_and_ended_requests_are_listed_the_newest_first(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.measure(node, 10.0, headers={"X-Request-Id": "first"}, user="alice")
    rig.clock.advance(1.0)
    _, call = await rig.run(node, headers={"X-Request-Id": "second"}, user="alice")
    await line_up(rig, "third", "fourth", user="bob", max_tokens=7)
    rig.clock.advance(5.0)
    fourth, third, second, first = await listed(rig)
    assert fourth | {"prompt_tokens": 0, "body_bytes": 0, "arrived": 0} == {
        "id": "fourth",
        "state": "waiting",
        "outcome": None,
        "status": None,
        "model": "m",
        "user": "bob",
        "priority": "normal",
        "position": 2,
        "estimated_wait_seconds": fourth["estimated_wait_seconds"],
        "waited_seconds": 5.0,
        "node": None,
        "attempt": 0,
        "reason": "every slot that could serve it is taken",
        "reason_code": "busy",
        "prompt_tokens": 0,
        "output_limit": 7,
        "body_bytes": 0,
        "arrived": 0,
    }
    assert fourth["estimated_wait_seconds"]["p50"] > third["estimated_wait_seconds"]["p50"]
    assert fourth["arrived"] == third["arrived"] + 1.0
    assert (third["id"], third["position"], third["waited_seconds"]) == ("third", 1, 6.0)
    assert (second["id"], second["state"], second["node"]) == ("second", "running", "n1")
    assert (first["id"], first["state"], first["outcome"]) == ("first", "ended", "served")
    assert (first["status"], first["user"], first["attempt"]) == (200, "alice", 1)
    await call.answer(OK)
    call = await node.next_call()
    await call.answer(OK)
    await (await node.next_call()).answer(OK)


async def test_the_list_is_filtered_by_state_user_and_model(rig: Rig) -> None:
    node = await rig.node(models=("m", "other"))
    await rig.start(node)
    _, call = await rig.run(node, headers={"X-Request-Id": "runs"}, user="alice")
    await line_up(rig, "waits", user="bob")
    await line_up(rig, "too", user="alice", model="other")
    assert ids(await listed(rig, "state=running")) == ["runs"]
    assert ids(await listed(rig, "state=waiting")) == ["too", "waits"]
    assert ids(await listed(rig, "state=ended")) == []
    assert ids(await listed(rig, "user=alice")) == ["too", "runs"]
    assert ids(await listed(rig, "user=alice&model=other")) == ["too"]
    assert ids(await listed(rig, "user=nobody")) == []
    for _ in range(2):
        await call.answer(OK)
        call = await node.next_call()
    await call.answer(OK)
    await rig.wait_until("processing", 0)
    assert ids(await listed(rig, "state=ended&model=m")) == ["waits", "runs"]


async def test_a_list_is_paged_by_the_id_that_ended_the_page_before(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.run(node, headers={"X-Request-Id": "a"})
    await line_up(rig, "b", "c", "d")
    seen, more = [], "limit=2"
    for _ in range(2):
        page = (await rig.get(f"{LIST}?{more}")).json
        seen.append((ids(page["data"]), page["has_more"]))
        more = f"limit=2&before={page['data'][-1]['id']}"
    assert seen == [(["d", "c"], True), (["b", "a"], False)]
    assert await listed(rig, "before=a") == []
    await rig.get("/v1/queue/d", method="DELETE")
    assert ids(await listed(rig, "before=d&state=waiting")) == ["c", "b"]


async def test_the_last_thousand_that_ended_are_kept(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_list, "ENDED_MAX", 3)
    node = await rig.node()
    await rig.start(node)
    for number in range(5):
        rig.clock.advance(1.0)
        await rig.measure(node, 0.0, headers={"X-Request-Id": f"r{number}"})
    assert ids(await listed(rig)) == ["r4", "r3", "r2"]


async def test_looking_through_many_gives_others_their_turn_and_tells_each_request_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_list, "TURN_ROWS", 2)
    node = await rig.node()
    await rig.start(node)
    await rig.run(node, headers={"X-Request-Id": "a"})
    await line_up(rig, "b", "c", "d", "e", "f")
    requests = rig.gateway.parts.requests
    assert turns_and_rows(requests.newest(RequestFilter(user="nobody"), 10)) == (3, [])

    def revoke() -> None:  # when f and e have been looked at
        for name in ("f", "c"):
            rig.gateway.parts.relay.revoke(name, "cancelled")

    turns, waiting = turns_and_rows(requests.newest(RequestFilter(state="waiting"), 10), revoke)
    assert (turns, waiting) == (3, ["f waiting", "e waiting", "d waiting", "b waiting"])
    await line_up(rig, "g", "h")
    _, rows = turns_and_rows(
        requests.newest(RequestFilter(), 10),
        lambda: rig.gateway.parts.relay.revoke("h", "cancelled"),
    )
    assert rows == [
        "h ended", "g waiting", "f ended", "e waiting", "d waiting", "c ended", "b waiting",
        "a running",
    ]  # fmt: skip


def turns_and_rows(
    looking: Coroutine[Any, Any, list[ListedRequest]], meanwhile: Callable[[], object] = object
) -> tuple[int, list[str]]:
    """Go through a search turn by turn; `meanwhile` is called after the first."""
    turns = 0
    while True:
        try:
            looking.send(None)
        except StopIteration as done:
            return turns, [f"{row.id} {row.state}" for row in done.value]
        turns += 1
        if turns == 1:
            meanwhile()


async def test_how_a_request_was_refused_is_told(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_size": 1, "full_status": 503})
    _, call = await rig.run(node)
    await line_up(rig, "late")
    for name, more in (("full", {}), ("bad", {"stream": "bad"})):
        rig.clock.advance(1.0)
        await (await rig.ask(headers={"X-Request-Id": name}, **more)).reply()
    rig.clock.advance(60.0)
    rows = {row["id"]: row for row in await listed(rig, "state=ended")}
    told = {name: (row["outcome"], row["status"]) for name, row in rows.items()}
    assert told == {
        "full": ("queue_full", 503),
        "bad": ("invalid_request", 400),
        "late": ("queue_timeout", 504),
    }
    assert rows["late"]["waited_seconds"] == 60.0
    assert rows["full"]["node"] is None
    await call.answer(OK)


async def test_a_key_sees_its_own_requests_and_an_admin_all(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a", user="alice"), key("b", user="alice")])
    _, call = await rig.run(node, headers={"X-Request-Id": "of-a", **A})
    rig.clock.advance(1.0)
    await rig.line_up(1, headers={"X-Request-Id": "of-b", **B})
    assert ids(await listed(rig, headers=A)) == ["of-a"]
    assert ids(await listed(rig, headers=B)) == ["of-b"]
    assert ids(await listed(rig, headers=ADMIN)) == ["of-b", "of-a"]
    assert (await rig.get(f"{LIST}?before=of-b", A)).status == 400
    rig.headers = {}
    assert (await rig.get(LIST)).status == 401
    await call.answer(OK)
    await (await node.next_call()).answer(OK)


async def test_without_keys_it_is_for_this_machine_only(rig: Rig) -> None:
    await rig.start()
    assert (await rig.get(LIST)).status == 200
    reply = await rig.get(LIST, {"X-Forwarded-For": "10.0.0.1"})
    assert (reply.status, reply.json["error"]["code"]) == (403, "forbidden")


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("state=lost", "state"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("before=nothing", "before"),
        (f"user={'u' * 600}", "user"),
        (f"model={'m' * 600}", "model"),
        ("own=true&before=a&before_arrived=nan", "before_arrived"),
    ],
)
async def test_a_bad_value_is_refused_by_its_name(rig: Rig, query: str, param: str) -> None:
    await rig.start()
    reply = await rig.get(f"{LIST}?{query}")
    assert (reply.status, reply.json["error"]["param"]) == (400, param)


async def test_no_request_can_be_called_like_the_list(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, headers={"X-Request-Id": "requests"})
    assert ids(await listed(rig)) != ["requests"]
    await call.answer(OK)
    assert (await client.reply()).headers["x-request-id"] != "requests"


async def test_an_admin_s_cancel_is_logged_with_the_key_s_name(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "forebay.gateway")
    node = await rig.node()
    await start(rig, node, keys=[key("a")])
    _, call = await rig.run(node, headers=A)
    for name, headers in (("by-itself", A), ("by-the-admin", ADMIN)):
        [client] = await rig.line_up(1, headers={"X-Request-Id": name, **A})
        await rig.get(f"/v1/queue/{name}", headers, "DELETE")
        assert (await client.reply()).status == 499
    [record] = [one for one in caplog.records if "cancelled by an admin" in one.message]
    assert (record.__dict__["id"], record.__dict__["key"]) == ("by-the-admin", "admin")
    await call.answer(OK)


def test_there_are_words_for_every_reason_to_wait() -> None:
    assert set(queue.REASONS) == {*get_args(actions.WaitReason), None}


# -- several gateways


async def test_the_list_is_that_of_the_whole_fleet(fleet: FleetRig) -> None:
    here, there, node = await fleet_rig.two(fleet, keys=fleet_rig.KEYS, environ=fleet_rig.SECRETS)
    boss, one = fleet_rig.bearer("sk-boss"), fleet_rig.bearer("sk-one")
    calls = []
    for number, (rig, who) in enumerate(((here, one), (there, one), (there, boss), (here, boss))):
        for each in (here, there):
            each.clock.advance(1.0)
        _, call = await rig.run(node, headers={"x-request-id": f"r{number}", **who})
        calls.append(call)
    for rig in (here, there):
        assert ids(await listed(rig, headers=boss)) == ["r3", "r2", "r1", "r0"]
        assert ids(await listed(rig, headers=one)) == ["r1", "r0"]
        page = (await rig.get(f"{LIST}?limit=1&before=r3", boss)).json
        assert (ids(page["data"]), page["has_more"], page["incomplete"]) == (["r2"], True, [])
    for call in calls:
        await call.answer(OK)


async def test_a_gateway_that_does_not_answer_is_named(fleet: FleetRig) -> None:
    here, _, _ = await fleet_rig.two(fleet, keys=fleet_rig.KEYS, environ=fleet_rig.SECRETS)
    await fleet.stop(fleet_rig.B)
    page = (await here.get(LIST, fleet_rig.bearer("sk-boss"))).json
    assert page == {"data": [], "has_more": False, "incomplete": [fleet_rig.B]}
