"""`/v1/batches` over raw HTTP: from a file to its answers, and everything that may be wrong."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from ..hot.forms import upload
from ..jobs.job_steps import ENVIRON, bearer
from ..jobs.job_steps import KEYS as OWNERS
from .test_files import KEYS, A, B

if TYPE_CHECKING:
    from forebay.testing import Reply

    from ..conftest import Rig

CHAT = "/v1/chat/completions"
OWNED: dict[str, Any] = {"keys": OWNERS, "environ": ENVIRON}
ENDED = ("completed", "failed", "expired", "cancelled")


def line(custom_id: str, model: str = "m") -> bytes:
    body = {"model": model, "messages": []}
    made = {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body}
    return json.dumps(made).encode() + b"\n"


async def post(
    rig: Rig, body: object, headers: dict[str, str] | None = None, path: str = "/v1/batches"
) -> Reply:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await rig.get(path, headers, "POST", body=raw)


async def create(rig: Rig, content: bytes, headers: dict[str, str] | None = None) -> Any:
    file = await upload(rig, content, headers)
    body = {"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h"}
    reply = await post(rig, body, headers)
    assert reply.status == 200, reply.body
    return reply.json


async def until(rig: Rig, batch_id: str, *statuses: str) -> Any:
    """Ask until the batch is there."""
    async with asyncio.timeout(20):
        while True:
            shown = (await rig.get(f"/v1/batches/{batch_id}")).json
            if shown["status"] in statuses:
                return shown


async def run(rig: Rig, count: int) -> None:
    """Run lines, as they come."""
    store = rig.gateway.parts.jobs.engine.store
    async with asyncio.timeout(20):
        while count:
            for job in await asyncio.wrap_future(store.claim("model:m", "w", 60.0, count)):
                result = '{"status_code": 200, "request_id": "r", "body": {"choices": []}}'
                assert await asyncio.wrap_future(store.complete(job, result))
                count -= 1


async def test_a_batch_runs_from_its_file_to_its_answers(rig: Rig) -> None:
    await rig.start()
    file = await upload(rig, line("a") + line("b"))
    given = {"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h"}
    reply = await post(rig, {**given, "metadata": {"why": "日本"}})
    made = reply.json
    assert reply.status == 200
    assert made == {
        "id": made["id"], "object": "batch", "endpoint": CHAT, "errors": None,
        "input_file_id": file["id"], "completion_window": "24h", "status": "validating",
        "output_file_id": None, "error_file_id": None, "created_at": made["created_at"],
        "in_progress_at": None, "expires_at": made["created_at"] + 86_400, "finalizing_at": None,
        "completed_at": None, "failed_at": None, "expired_at": None, "cancelling_at": None,
        "cancelled_at": None, "request_counts": {"total": 0, "completed": 0, "failed": 0},
        "metadata": {"why": "日本"}, "models": [],
    }  # fmt: skip
    await run(rig, 2)
    done = await until(rig, made["id"], *ENDED)
    assert done["status"] == "completed"
    assert done["request_counts"] == {"total": 2, "completed": 2, "failed": 0}
    assert done["models"] == ["m"]
    assert isinstance(done["completed_at"], int)
    output = await rig.get(f"/v1/files/{done['output_file_id']}/content")
    assert [json.loads(text)["custom_id"] for text in output.body.splitlines()] == ["a", "b"]
    (listed,) = (await rig.get("/v1/files?purpose=batch_output")).json["data"]
    assert listed["id"] == done["output_file_id"]


async def test_what_is_wrong_with_a_file_is_told(rig: Rig) -> None:
    await rig.start()
    made = await create(rig, line("a") + line("a"))
    done = await until(rig, made["id"], *ENDED)
    assert done["status"] == "failed"
    assert done["errors"]["object"] == "list"
    (error,) = done["errors"]["data"]
    assert (error["code"], error["line"], error["param"]) == ("duplicate_custom_id", 2, "custom_id")


async def test_a_batch_is_cancelled(rig: Rig) -> None:
    await rig.start()
    made = await create(rig, line("a") + line("b"))
    await run(rig, 1)
    reply = await post(rig, b"", path=f"/v1/batches/{made['id']}/cancel")
    assert (reply.status, reply.json["status"]) == (200, "cancelling")
    done = await until(rig, made["id"], *ENDED)
    assert (done["status"], done["request_counts"]["completed"]) == ("cancelled", 1)
    again = await post(rig, b"", path=f"/v1/batches/{made['id']}/cancel")
    assert (again.status, again.json) == (200, done)


async def test_a_batch_that_has_ended_cannot_be_cancelled(rig: Rig) -> None:
    await rig.start()
    made = await create(rig, b"\n")
    await until(rig, made["id"], "failed")
    reply = await post(rig, b"", path=f"/v1/batches/{made['id']}/cancel")
    assert (reply.status, reply.json["error"]["code"]) == (409, "conflict")


async def test_a_file_that_is_needed_cannot_be_deleted(rig: Rig) -> None:
    await rig.start()
    made = await create(rig, line("a"))
    path = f"/v1/files/{made['input_file_id']}"
    reply = await rig.get(path, method="DELETE")
    assert (reply.status, reply.json["error"]["code"]) == (409, "conflict")
    await run(rig, 1)
    await until(rig, made["id"], "completed")
    assert (await rig.get(path, method="DELETE")).status == 200


async def test_batches_are_listed_page_by_page(rig: Rig) -> None:
    await rig.start()
    ids = [(await create(rig, line("a")))["id"] for _ in range(3)]
    whole = (await rig.get("/v1/batches")).json
    assert [one["id"] for one in whole["data"]] == ids[::-1]
    assert (whole["first_id"], whole["last_id"], whole["has_more"]) == (ids[2], ids[0], False)
    first = (await rig.get("/v1/batches?limit=2")).json
    assert ([one["id"] for one in first["data"]], first["has_more"]) == (ids[:0:-1], True)
    rest = (await rig.get(f"/v1/batches?limit=2&after={ids[1]}")).json
    assert ([one["id"] for one in rest["data"]], rest["has_more"]) == (ids[:1], False)


async def test_batches_are_found_by_model_and_status_even_when_they_have_ended(
    rig: Rig, database_url: str
) -> None:
    await rig.start(await rig.node(models=["m", "M", "n"]), jobs={"database": database_url})
    await rig.get("/admin/nodes/n1/drain", method="POST")
    mixed = (await create(rig, line("a", "M") + line("b", "n") + line("c", "n")))["id"]
    ended = (await create(rig, line("a", "m")))["id"]
    for batch_id in (mixed, ended):
        await until(rig, batch_id, "in_progress")
    await run(rig, 1)
    await until(rig, ended, "completed")
    found = {
        query: [one["id"] for one in (await rig.get(f"/v1/batches?{query}")).json["data"]]
        for query in (
            "model=m", "model=n", "model=M", "model=x", "model=m&status=completed",
            "model=n&status=completed", f"model=n&after={ended}", f"model=m&after={ended}",
        )
    }  # fmt: skip
    assert list(found.values()) == [[ended], [mixed], [mixed], [], [ended], [], [mixed], []]
    whole = (await rig.get("/v1/batches")).json["data"]
    assert [one["models"] for one in whole] == [["m"], ["M", "n"]]
    assert (await rig.get(f"/v1/batches/{ended}")).json["models"] == ["m"]
    cancelled = await post(rig, {}, path=f"/v1/batches/{mixed}/cancel")
    assert cancelled.json["models"] == ["M", "n"]


GOOD = {"endpoint": CHAT, "completion_window": "24h"}
WRONG = {
    "not JSON": (b"{", "body"),
    "nothing": (b"", "body"),
    "not UTF-8": (b'{"endpoint": "\xff"}', "body"),
    "too deep": (b'{"metadata": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", "body"),
    "a list": ([], "body"),
    "null": (None, "body"),
    "a string": ("file", "body"),
    "no file": ({"input_file_id": ...}, "input_file_id"),
    "file null": ({"input_file_id": None}, "input_file_id"),
    "file a number": ({"input_file_id": 7}, "input_file_id"),
    "file unknown": ({"input_file_id": "file-" + "0" * 24}, "input_file_id"),
    "file strange": ({"input_file_id": "a\0b"}, "input_file_id"),
    "no endpoint": ({"endpoint": ...}, "endpoint"),
    "endpoint unknown": ({"endpoint": "/v1/audio/speech"}, "endpoint"),
    "endpoint a list": ({"endpoint": [CHAT]}, "endpoint"),
    "no window": ({"completion_window": ...}, "completion_window"),
    "window a number": ({"completion_window": 24}, "completion_window"),
    "window too long": ({"completion_window": "15d"}, "completion_window"),
    "window nothing": ({"completion_window": "0h"}, "completion_window"),
    "metadata a list": ({"metadata": ["x"]}, "metadata"),
    "metadata of numbers": ({"metadata": {"n": 1}}, "metadata"),
    "metadata too many": ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
    "metadata key too long": ({"metadata": {"k" * 65: ""}}, "metadata"),
    "metadata value too long": ({"metadata": {"k": "v" * 513}}, "metadata"),
    "an unknown field": ({"colour": "red"}, "colour"),
    "an expiry": ({"output_expires_after": {"anchor": "created_at", "seconds": 9}},
                  "output_expires_after"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_batch_is_refused_by_field(rig: Rig, name: str) -> None:
    await rig.start()
    given, param = WRONG[name]
    body: Any = given
    if isinstance(given, dict):
        file = await upload(rig, line("a"))
        body = {"input_file_id": file["id"], **GOOD, **given}
        body = {key: value for key, value in body.items() if value is not ...}
    reply = await post(rig, body)
    error = reply.json["error"]
    assert (reply.status, error["param"]) == (400, param), error
    assert (await rig.get("/v1/batches")).json["data"] == []


async def test_a_body_has_a_bound(rig: Rig) -> None:
    await rig.start()
    reply = await post(rig, {**GOOD, "pad": "x" * 70_000})
    assert (reply.status, reply.json["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("query", "param"),
    [*((f"limit={value}", "limit") for value in ("0", "101", "x", "-1", "")),
     ("after=x", "after"), ("after=batch_" + "0" * 24, "after"), ("after=%00", "after"),
     ("model=", "model"), ("model=%00", "model")],
)  # fmt: skip
async def test_a_wrong_list_is_refused_by_parameter(rig: Rig, query: str, param: str) -> None:
    await rig.start()
    reply = await rig.get(f"/v1/batches?{query}")
    assert (reply.status, reply.json["error"]["param"]) == (400, param)


@pytest.mark.parametrize("name", ["x", "batch_0", "batch_" + "0" * 24, "%00"])
async def test_what_is_not_there_is_not_found(rig: Rig, name: str) -> None:
    await rig.start()
    for method, path in (("GET", name), ("POST", f"{name}/cancel")):
        reply = await rig.get(f"/v1/batches/{path}", method=method)
        assert (reply.status, reply.json["error"]["code"]) == (404, "not_found")


async def test_the_bound_on_unfinished_batches_is_told(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.jobs.batches.service.OPEN_MAX", 1)
    await rig.start()
    made = await create(rig, line("a"))
    body = {**GOOD, "input_file_id": made["input_file_id"]}
    reply = await post(rig, body)
    assert (reply.status, reply.json["error"]["code"]) == (429, "batches_full")
    assert "retry-after" in reply.headers


async def test_another_key_s_batches_do_not_exist(rig: Rig) -> None:
    await rig.start(**KEYS)
    made = await create(rig, line("a"), A)
    path = f"/v1/batches/{made['id']}"
    assert (await rig.get(path, A)).status == 200
    assert (await rig.get(path, B)).status == 404
    assert (await post(rig, b"", B, f"{path}/cancel")).status == 404
    assert (await rig.get("/v1/batches", B)).json["data"] == []
    assert (await rig.get("/v1/batches")).status == 401
    theirs = {**GOOD, "input_file_id": made["input_file_id"]}
    reply = await post(rig, theirs, B)
    assert (reply.status, reply.json["error"]["param"]) == (400, "input_file_id")


async def test_an_admin_sees_whose_batches_there_are_and_cancels_them(
    rig: Rig, database_url: str
) -> None:
    await rig.start(**OWNED, jobs={"database": database_url})
    ended, waiting = [await create(rig, line("a"), bearer(one)) for one in ("A", "B")]
    rig.headers = bearer("ROOT")
    await run(rig, 1)
    await until(rig, ended["id"], "completed")
    for query, ids in (("", [waiting, ended]), ("?status=completed", [ended])):
        data = (await rig.get(f"/v1/batches{query}")).json["data"]
        assert [one["id"] for one in data] == [one["id"] for one in ids]
        assert [one["owner"] for one in data] == ["b", "a"][-len(ids) :]
    (own,) = (await rig.get("/v1/batches", bearer("A"))).json["data"]
    assert "owner" not in own
    await post(rig, {}, path=f"/v1/batches/{waiting['id']}/cancel")
    await until(rig, waiting["id"], "cancelled")


async def test_a_key_runs_only_the_models_that_it_may(rig: Rig) -> None:
    keys = [{**KEYS["keys"][0], "models": ["n"]}]
    await rig.start(keys=keys, environ=KEYS["environ"])
    rig.headers = A
    made = await create(rig, line("a", "n") + line("b", "m"), A)
    done = await until(rig, made["id"], *ENDED)
    (error,) = done["errors"]["data"]
    assert (error["code"], error["line"]) == ("model_not_allowed", 2)


async def test_lines_are_not_counted_as_jobs(rig: Rig) -> None:
    await rig.start()
    made = await create(rig, line("a") + line("b"))
    await run(rig, 2)
    await until(rig, made["id"], "completed")
    shown = (await rig.get("/metrics")).body.decode()
    assert 'forebay_jobs{status="' not in shown
