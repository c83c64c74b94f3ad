"""Lists of jobs and batches: filters, pages, and who sees whose."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import openai

from ..jobs.job_steps import ENVIRON, KEYS, bearer, chat, post, submit
from .test_batches import create, line, run, until

if TYPE_CHECKING:
    from ..conftest import Rig


async def test_jobs_are_filtered_by_model_and_paged(rig: Rig, database_url: str) -> None:
    node = await rig.node(models=["m", "n"])
    await rig.start(node, jobs={"database": database_url})
    ids = [await submit(rig, chat(n, model="mn"[n % 2])) for n in range(6)]
    found = (await rig.get("/jobs?model=n")).json
    assert [one["id"] for one in found["data"]] == ids[1::2][::-1]
    assert "has_more" not in found
    assert "owner" not in found["data"][0]
    first = (await rig.get("/jobs?model=n&limit=2")).json
    assert ([one["id"] for one in first["data"]], first["has_more"]) == ([ids[5], ids[3]], True)
    rest = (await rig.get(f"/jobs?model=n&limit=2&before={ids[3]}")).json
    assert [one["id"] for one in rest["data"]] == [ids[1]]
    assert "has_more" not in rest
    assert (await rig.get("/jobs?model=other")).json == {"data": []}


async def test_only_an_admin_is_told_whose_a_job_is(rig: Rig) -> None:
    await rig.start(await rig.node(), keys=KEYS, environ=ENVIRON)
    made = (await post(rig, chat(), bearer("A"))).json["id"]
    (seen,) = (await rig.get("/jobs", bearer("ROOT"))).json["data"]
    assert (seen["id"], seen["owner"]) == (made, "a")
    assert (await rig.get(f"/jobs/{made}", bearer("ROOT"))).json["owner"] == "a"
    (own,) = (await rig.get("/jobs", bearer("A"))).json["data"]
    assert "owner" not in own
    assert (await rig.get("/jobs", bearer("B"))).json["data"] == []


async def test_ended_batches_stay_listed_and_an_admin_sees_and_cancels_all(
    rig: Rig, database_url: str
) -> None:
    await rig.start(keys=KEYS, environ=ENVIRON, jobs={"database": database_url})
    ended = await create(rig, line("a"), bearer("A"))
    rig.headers = bearer("A")
    await run(rig, 1)
    await until(rig, ended["id"], "completed")
    waiting = await create(rig, line("b"), bearer("B"))

    def client(key: str) -> openai.AsyncOpenAI:
        url = f"http://127.0.0.1:{rig.gateway.port}/v1"
        return openai.AsyncOpenAI(base_url=url, api_key=ENVIRON[key], max_retries=0)

    async with client("A") as a, client("B") as b, client("ROOT") as root:
        assert [one.id for one in (await a.batches.list()).data] == [ended["id"]]
        assert [one.id for one in (await b.batches.list()).data] == [waiting["id"]]
        everybodys = (await root.batches.list()).data
        assert [one.id for one in everybodys] == [waiting["id"], ended["id"]]
        assert [one.model_extra["owner"] for one in everybodys] == ["b", "a"]
        pages = [one.id async for one in root.batches.list(limit=1)]
        assert pages == [waiting["id"], ended["id"]]
        await root.batches.cancel(waiting["id"])
        async with asyncio.timeout(20):
            while (await b.batches.retrieve(waiting["id"])).status != "cancelled":
                pass
    done = (await rig.get("/v1/batches?status=completed", bearer("ROOT"))).json["data"]
    assert [one["id"] for one in done] == [ended["id"]]
    assert "owner" not in (await rig.get("/v1/batches", bearer("A"))).json["data"][0]
    assert (await rig.get("/v1/batches?status=lost", bearer("A"))).status == 400
