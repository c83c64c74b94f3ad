"""What is counted of requests, jobs and prompts, who sees it, and that nothing waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import sqlite3
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from forebay.records.usage import HOUR_S, UsageCounts, UsageKey

from ..conftest import OK
from ..hot.test_users_and_keys import ADMIN, A, B, key, start

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from forebay.records.usage import UsageRow

    from ..conftest import Rig

USED = {**OK, "usage": {"prompt_tokens": 11, "completion_tokens": 5}}
COUNTS = ("requests", "prompt_tokens", "output_tokens")


async def serve(rig: Rig, node: Any, **more: Any) -> None:
    client, call = await rig.run(node, **more)
    await call.answer(USED)
    assert (await client.reply()).status == 200
    client.close()


async def written(rig: Rig, requests: int, path: str = "/v1/usage") -> list[dict[str, Any]]:
    """Let time pass until so many requests are in the database; return its rows."""
    for _ in range(300):
        rig.clock.advance(0.5)
        rows: list[dict[str, Any]] = (await rig.get(path)).json["data"]
        if sum(row["requests"] for row in rows) >= requests:
            return rows
    raise AssertionError(rows)


def told(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in (*names, *COUNTS)) for row in rows]


async def test_requests_and_tokens_are_counted_by_key_user_model_and_hour(rig: Rig) -> None:
    node = await rig.node(models=("m", "n"))
    await start(rig, node, keys=[key("a", trust_user=True), key("b")])
    await serve(rig, node, headers=A, user="ann")
    await serve(rig, node, headers=A, user="ann")
    await serve(rig, node, headers=B, model="n")
    rows = await written(rig, 3)
    assert told(rows, "key", "user", "model") == [
        ("a", "a/ann", "m", 2, 22, 10),
        ("b", "b", "n", 1, 11, 5),
    ]
    now = rig.clock.utc().astimezone(UTC)
    assert {row["hour"] for row in rows} == {now.strftime("%Y-%m-%dT%H:00:00Z")}
    by_key = (await rig.get("/v1/usage?by=key")).json["data"]
    assert told(by_key, "key", "user", "model") == [
        ("a", None, None, 2, 22, 10),
        ("b", None, None, 1, 11, 5),
    ]


async def test_a_key_sees_its_own_usage_and_an_admin_that_of_all(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a"), key("b")])
    await serve(rig, node, headers=A)
    await serve(rig, node, headers=B)
    assert len(await written(rig, 2)) == 2
    (mine,) = (await rig.get("/v1/usage", A)).json["data"]
    assert mine["key"] == "a"
    client = await rig.client()
    await client.get("/v1/usage")
    assert (await client.reply()).status == 401


async def test_without_keys_usage_is_for_this_machine(rig: Rig) -> None:
    await rig.start(await rig.node())
    assert (await rig.get("/v1/usage")).status == 200
    assert (await rig.get("/v1/usage", {"X-Forwarded-For": "10.0.0.1"})).status == 403


async def test_what_never_ran_counts_as_a_request_without_tokens(rig: Rig) -> None:
    node = await rig.node(slots=1)
    await rig.start(node, queue={"max_size": 1})
    running, call = await rig.run(node, user="ann")
    (waiting,) = await rig.line_up(1, user="ann")
    refused = await rig.ask(user="ann")
    assert (await refused.reply()).status == 429
    waiting.close()
    await rig.wait_until("waiting", 0)
    await call.answer(USED)
    assert (await running.reply()).status == 200
    rows = await written(rig, 3)
    assert told(rows, "user", "model") == [("ann", "", 2, 0, 0), ("ann", "m", 1, 11, 5)]


async def test_jobs_and_prompts_are_counted_for_the_key_that_sent_them(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a")])
    body = {"type": "chat", "params": {"model": "m", "messages": []}}
    client = await rig.client()
    await client.post("/jobs", body, A)
    assert (await client.reply()).status == 202
    await (await node.next_call()).answer(USED)
    rows = await written(rig, 1)
    assert told(rows, "key", "user", "model") == [("a", "a", "m", 1, 11, 5)]


async def test_usage_survives_a_restart_and_is_added_to(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await serve(rig, node, user="ann")
    await written(rig, 1)
    await serve(rig, node, user="ann")  # and stop before it is written
    await rig.gateway.stop(0.0)
    await rig.start(node)
    assert told(await written(rig, 2), "user") == [("ann", 2, 22, 10)]


async def test_usage_as_csv_holds_no_formula(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await serve(rig, node, user="=HYPERLINK(1)")
    await written(rig, 1)
    reply = await rig.get("/v1/usage?format=csv")
    assert reply.headers["content-type"].startswith("text/csv")
    (row,) = csv.DictReader(reply.body.decode().splitlines())
    assert (row["user"], row["requests"]) == ("'=HYPERLINK(1)", "1")


@pytest.mark.parametrize(
    ("query", "param"),
    [("by=day", "by"), ("format=xml", "format"), ("from=now", "from"), ("to=1e9", "to")],
)
async def test_a_question_that_makes_no_sense_is_refused_by_name(
    rig: Rig, query: str, param: str
) -> None:
    await rig.start(await rig.node())
    refused = await rig.get(f"/v1/usage?{query}")
    assert (refused.status, refused.json["error"]["param"]) == (400, param)


async def test_only_the_hours_asked_for_are_told(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await serve(rig, node)
    await written(rig, 1)
    now = int(rig.clock.utc().timestamp())
    later = datetime.fromtimestamp(now + 7200, UTC).isoformat().replace("+00:00", "Z")
    for query in (f"from={later}&to={now + 7200}", f"to={now - 7200}"):
        assert (await rig.get(f"/v1/usage?{query}")).json["data"] == []


async def test_a_database_that_is_away_costs_no_request_and_no_count(rig: Rig) -> None:
    away = rig.folder / "away"
    node = await rig.node()
    await rig.start(node, jobs={"database": f"sqlite:///{away}/jobs.db"})
    await serve(rig, node, user="ann")
    for _ in range(5):
        rig.clock.advance(1.0)
        assert (await rig.get("/health")).status == 200
    assert (await rig.get("/v1/usage")).json["error"]["code"] == "store_unavailable"
    away.mkdir()
    assert told(await written_at_last(rig, 1), "user") == [("ann", 1, 11, 5)]


async def test_usage_of_a_gateway_that_stops_before_it_has_a_database_is_written(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await serve(rig, node, user="ann")
    assert not (rig.folder / "jobs.db").exists()
    await rig.gateway.stop(0.0)
    await rig.start(node)
    assert told(await written(rig, 1), "user") == [("ann", 1, 11, 5)]


async def test_writes_that_fail_are_tried_less_and_less_often_and_lose_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    await rig.start(node)
    await serve(rig, node, user="ann")
    await written(rig, 1)
    store = await rig.gateway.parts.records.ready()
    asked, add = 0, store.add_usage

    def counted(rows: Sequence[UsageRow]) -> Future[None]:
        nonlocal asked
        asked += 1
        return add(rows)

    monkeypatch.setattr(store, "add_usage", counted)
    with contextlib.closing(sqlite3.connect(rig.folder / "jobs.db")) as database:
        refusal = "BEGIN SELECT RAISE(ABORT, 'no'); END"
        database.execute(f"CREATE TRIGGER no BEFORE INSERT ON usage_hours {refusal}")
        await serve(rig, node, user="ann")
        for _ in range(80):
            rig.clock.advance(0.5)
            await rig.queue()
        assert 1 <= asked <= 6  # after 1, 3, 7, 15 and 31 seconds
        database.execute("DROP TRIGGER no")
    assert told(await written_at_last(rig, 2), "user") == [("ann", 2, 22, 10)]


async def written_at_last(rig: Rig, requests: int) -> list[dict[str, Any]]:
    """Return the usage once so many requests are in it."""
    for _ in range(300):
        rig.clock.advance(1.0)
        reply = await rig.get("/v1/usage")
        if reply.status == 200:
            rows: list[dict[str, Any]] = reply.json["data"]
            if sum(row["requests"] for row in rows) == requests:
                return rows
    raise AssertionError(reply.body)


async def test_what_other_gateways_served_today_is_read_by_a_clock_that_was_set_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    monkeypatch.setattr(rig.clock, "_epoch", rig.clock.utc() + timedelta(hours=9))
    await start(rig, node, keys=[key("a", tokens_per_day=100)])
    await serve(rig, node, headers=A)
    await written(rig, 1)
    records = rig.gateway.parts.records
    monkeypatch.setattr(rig.clock, "_epoch", rig.clock.utc() - timedelta(hours=9))
    hour = int(records.now()) // HOUR_S
    rows = [(UsageKey(hour, "a", "a", "m"), UsageCounts(1, 40, 50))]
    await asyncio.wrap_future((await records.ready()).add_usage(rows))
    for _ in range(200):
        rig.clock.advance(0.5)
        await rig.queue()
        if records.used_today() == {"a": 106}:
            return
    raise AssertionError(records.used_today())


async def test_tokens_by_key_are_in_the_metrics_and_nobody_else_s(rig: Rig) -> None:
    node = await rig.node()
    await start(rig, node, keys=[key("a", trust_user=True)])
    await serve(rig, node, headers=A, user="ann")
    await written(rig, 1)
    text = (await rig.get("/metrics", ADMIN)).body.decode()
    assert 'forebay_usage_tokens_total{key="a",kind="prompt"} 11.0' in text
    assert 'forebay_usage_tokens_total{key="a",kind="output"} 5.0' in text
    assert "ann" not in text


async def test_a_reload_changes_how_long_usage_is_kept(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await serve(rig, node)
    await written(rig, 1)
    rig.given["usage"] = {"retention_days": 1}
    changed = (await rig.get("/admin/reload", method="POST")).json["changed"]
    assert changed == ["usage.retention_days"]
    rig.clock._now_s += 3 * 86400  # as after a sleep: what is due fires once, not every second
    deleted = 'forebay_retention_deleted_total{kind="usage"} 1.0'
    for _ in range(300):
        rig.clock.advance(60)
        if deleted in (await rig.get("/metrics")).body.decode():
            break
    else:
        raise AssertionError("usage is kept for ever")
    assert not (await rig.get("/v1/usage?from=0")).json["data"]


async def test_a_database_that_fails_is_in_the_metrics_until_it_does_not(rig: Rig) -> None:
    database = rig.folder / "records.db"
    database.write_bytes(b"this is no database" * 100)
    await start(rig, keys=[], jobs={"database": f"sqlite:///{database}"})

    async def failing() -> bool:
        return b"forebay_records_failing 1.0" in (await rig.get("/metrics")).body

    assert await failing()
    database.unlink()
    for _ in range(300):
        rig.clock.advance(0.5)
        if not await failing():
            return
    raise AssertionError("it is still said to fail")
