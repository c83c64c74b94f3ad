"""Jobs count towards the rate of the key that submitted them, and are in nobody else's way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from forebay.jobs.idle import tickets

from ..conftest import CHAT, OK
from ..hot.test_users_and_keys import ADMIN, A, B, key, start
from ..routes.test_batches import create
from ..routes.test_batches import until as until_batch
from ..test_reload import reload
from .job_steps import chat, post
from .job_steps import until as until_job

if TYPE_CHECKING:
    import pytest

    from forebay.testing import FakeNode

    from ..conftest import Rig

USED = {**OK, "usage": {"prompt_tokens": 10, "completion_tokens": 20}}


def lines(who: str, count: int) -> bytes:
    body = {"model": "m", "messages": [], "user": who}
    made = [
        {"custom_id": f"{who}{n}", "method": "POST", "url": CHAT, "body": body}
        for n in range(count)
    ]  # fmt: skip
    return b"".join(json.dumps(one).encode() + b"\n" for one in made)


async def serve(node: FakeNode, count: int, answer: dict[str, object] = USED) -> list[str]:
    """Answer so many calls, and return whose they were."""
    served = []
    for _ in range(count):
        call = await node.next_call()
        served.append(str(json.loads(call.body)["user"]))
        await call.answer(answer)
    return served


async def until_no_job_has_a_slot(rig: Rig) -> None:
    for _ in range(2000):
        if not (await rig.gateway.parts.queue_observer.snapshot()).running_jobs:
            return
        await rig.queue()
    raise AssertionError("a job keeps its slot")


async def used(rig: Rig, requests: int) -> dict[str, tuple[int, int]]:
    """Return requests and prompt tokens by key, once so many requests have been written down."""
    for _ in range(300):
        rig.clock.advance(0.5)
        rows = (await rig.get("/v1/usage?by=key", ADMIN)).json["data"]
        found = {row["key"]: (row["requests"], row["prompt_tokens"]) for row in rows}
        if sum(count for count, _ in found.values()) >= requests:
            break
    return found


async def until_it_waits_for_its_rate(rig: Rig, job_id: int) -> None:
    for _ in range(2000):
        seen = (await rig.get(f"/jobs/{job_id}", A)).json
        if seen["stage"]:
            break
    assert (seen["status"], seen["stage"]) == ("queued", "waits for the rate of its key")


async def submit(rig: Rig, headers: dict[str, str], number: int = 0) -> int:
    body: dict[str, Any] = chat(number)
    body["params"]["user"] = "a" if headers is A else "b"
    reply = await post(rig, body, headers)
    assert reply.status == 202, reply.json
    return int(reply.json["id"])


async def test_a_batch_is_paced_by_its_key_and_another_one_is_not_held_up(rig: Rig) -> None:
    node = await rig.node(slots=8)
    await start(rig, node, keys=[key("a", requests_per_minute=2), key("b")])
    slow = await create(rig, lines("a", 5), A)
    assert await serve(node, 2) == ["a", "a"]  # what its bucket holds
    quick = await create(rig, lines("b", 5), B)
    assert await serve(node, 5) == ["b"] * 5
    assert (await until_batch(rig, quick["id"], "completed"))["request_counts"]["completed"] == 5
    for number in range(3):
        await until_no_job_has_a_slot(rig)
        assert len(node.calls) == 7 + number
        rig.clock.advance(30.1)
        assert await serve(node, 1) == ["a"]
    await until_batch(rig, slow["id"], "completed")
    assert await used(rig, 10) == {"a": (5, 50), "b": (5, 50)}


async def test_live_requests_and_jobs_of_a_key_share_its_rate(rig: Rig) -> None:
    node = await rig.node(slots=8)
    await start(rig, node, keys=[key("a", requests_per_minute=2)])
    first = await submit(rig, A)
    assert await serve(node, 1) == ["a"]
    await until_job(rig, first, "completed")
    _, call = await rig.run(node, headers=A)
    await call.answer(OK)
    second = await submit(rig, A, 1)
    await until_it_waits_for_its_rate(rig, second)
    rig.clock.advance(30.1)
    assert await serve(node, 1) == ["a"]
    assert (await until_job(rig, second, "completed"))["stage"] is None


async def test_tickets_that_wait_for_a_rate_leave_room_for_those_of_other_keys(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tickets, "TICKETS_MAX", 1)
    node = await rig.node(slots=8)
    await start(rig, node, keys=[key("a", requests_per_minute=1), key("b")])
    await submit(rig, A)
    assert await serve(node, 1) == ["a"]
    await until_it_waits_for_its_rate(rig, await submit(rig, A, 1))
    other = await submit(rig, B)
    assert await serve(node, 1) == ["b"]
    await until_job(rig, other, "completed")


async def test_tokens_of_jobs_are_charged_and_corrected_to_what_was_used(rig: Rig) -> None:
    node = await rig.node(slots=8)
    await start(rig, node, keys=[key("a", tokens_per_minute=60)])
    many = {**OK, "usage": {"prompt_tokens": 100, "completion_tokens": 20}}
    jobs = [await submit(rig, A, number) for number in range(2)]
    call = await node.next_call()
    await until_it_waits_for_its_rate(rig, jobs[1])
    await call.answer(many)
    await until_job(rig, jobs[0], "completed")
    await until_no_job_has_a_slot(rig)
    rig.clock.advance(59.0)  # 60 are owed
    await rig.queue()
    assert len(node.calls) == 1
    rig.clock.advance(61.1)  # and it takes as many to start, at most
    assert await serve(node, 1) == ["a"]


async def test_a_job_starts_when_its_own_prompt_fits_the_rate(rig: Rig) -> None:
    node = await rig.node(slots=8)
    await start(rig, node, keys=[key("a", tokens_per_minute=9000)])
    jobs = []
    for who, tokens in (("long", 5000), ("short", 10), ("long again", 5000)):
        content = "ten " * tokens
        params = {"messages": [{"role": "user", "content": content}], "user": who}
        reply = await post(rig, {"type": "chat", "model": "m", "params": params}, A)
        jobs.append(int(reply.json["id"]))
    calls = [await node.next_call() for _ in range(2)]
    assert [json.loads(call.body)["user"] for call in calls] == ["long", "short"]
    await until_it_waits_for_its_rate(rig, jobs[2])
    for call in calls:
        await call.answer({**OK, "usage": {"prompt_tokens": 5000, "completion_tokens": 1}})
    rig.clock.advance(40.0)  # 9,000 - 2 * 5,001 + 6,000
    assert await serve(node, 1) == ["long again"]


async def test_jobs_go_on_at_once_when_their_key_has_no_limits_any_more(rig: Rig) -> None:
    node = await rig.node(slots=8)
    await start(rig, node, keys=[key("a", requests_per_minute=1)])
    await create(rig, lines("a", 3), A)
    assert await serve(node, 1) == ["a"]
    await reload(rig, keys=[key("a"), key("admin", admin=True)])
    assert await serve(node, 1) == ["a"]  # whose ticket was parked
    rig.clock.advance(2.1)  # the store is asked what is left
    assert await serve(node, 1) == ["a"]


async def test_jobs_that_wait_are_paced_by_limits_that_come_later(rig: Rig) -> None:
    node = await rig.node(slots=1)
    await start(rig, node, keys=[key("a")])
    await create(rig, lines("a", 3), A)
    call = await node.next_call()
    await reload(rig, keys=[key("a", requests_per_minute=1), key("admin", admin=True)])
    await call.answer(OK)
    rig.clock.advance(2.1)
    assert await serve(node, 1) == ["a"]
    rig.clock.advance(30.0)
    await rig.queue()
    assert len(node.calls) == 2
    rig.clock.advance(30.1)
    assert await serve(node, 1) == ["a"]


async def test_a_key_that_is_gone_from_the_settings_has_its_jobs_run_once_it_is_back(
    rig: Rig,
) -> None:
    node = await rig.node(slots=8)
    paced = key("a", requests_per_minute=1)
    await start(rig, node, keys=[paced])
    made = await create(rig, lines("a", 3), A)
    assert await serve(node, 1) == ["a"]
    await reload(rig, keys=[key("admin", admin=True)])
    rig.clock.advance(120.0)
    await until_no_job_has_a_slot(rig)
    assert len(node.calls) == 1
    await reload(rig, keys=[key("a"), key("admin", admin=True)])
    assert await serve(node, 2) == ["a", "a"]
    await until_batch(rig, made["id"], "completed")
