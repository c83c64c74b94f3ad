"""Prompts that find no room get in as soon as there is some, however it came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from forebay.core import Arrived

from ..jobs.job_steps import ENVIRON, bearer
from .session_steps import Http, new_session, prompt, started, turn, until_turn

if TYPE_CHECKING:
    from forebay.relay.problem import Problem
    from forebay.relay.reservation import Reservation
    from forebay.testing import Call, FakeNode

    from ..conftest import Rig

OK: dict[str, object] = {"choices": []}
ADMIN = {"name": "root", "key_env": "ROOT", "admin": True}


async def waits_for_room(rig: Rig, text: str = "one", **fields: Any) -> tuple[str, str]:
    """Have a prompt head a session of its own and find no room; return both ids."""
    session = await new_session(rig, **fields)
    prompt_id = await prompt(rig, session, text)
    assert (await turn(rig, session, prompt_id))["status"] == "queued"
    return session, prompt_id


async def reload(rig: Rig) -> None:
    """Have the gateway read what is given now."""
    headers = bearer("ROOT") if "keys" in rig.given else {}
    assert (await rig.get("/admin/reload", headers, "POST")).status == 200


async def next_text(node: FakeNode) -> str:
    """Return what the next call at a node asks; empty for a live request without messages."""
    return text_of(await node.next_call())


def text_of(call: Call) -> str:
    messages = call.json["messages"]
    return messages[-1]["content"] if messages else ""


# -- room that comes with no request's end


async def test_a_node_that_is_added_lets_in_who_waits_for_room(rig: Rig) -> None:
    other = await rig.node(slots=4)
    node = await started(rig, queue={"max_size": 1})
    await rig.run(node)
    await rig.line_up(1)
    await waits_for_room(rig)
    rig.given["nodes"].append({"name": "n2", "url": other.url, "slots": 4})
    await reload(rig)
    await rig.until_node("n2", "online")
    assert sorted([await next_text(other), await next_text(other)]) == ["", "one"]


async def test_a_node_that_comes_back_lets_in_who_waits_for_room(rig: Rig) -> None:
    node, other = await rig.node(), await rig.node()
    other.health = "error"
    await rig.start(node, other, queue={"enabled": False})
    await rig.run(node)
    await waits_for_room(rig)
    other.health = "ok"
    await rig.until_node("n2", "online")
    assert await next_text(other) == "one"


async def test_slots_that_a_reload_adds_let_in_who_waits_with_the_queue_off(rig: Rig) -> None:
    node = await started(rig, queue={"enabled": False})
    await rig.run(node)
    await waits_for_room(rig)
    rig.given["nodes"][0]["slots"] = 4
    await reload(rig)
    assert await next_text(node) == "one"


async def test_a_key_whose_bound_a_reload_raises_gets_in(rig: Rig) -> None:
    keys: list[dict[str, Any]] = [{"name": "a", "key_env": "A", "max_running": 1}, ADMIN]
    node = await started(rig, keys=keys, environ=ENVIRON, slots=4)
    rig.headers = bearer("A")
    await rig.run(node, headers=bearer("A"))
    await waits_for_room(rig)
    rig.given["keys"][0]["max_running"] = 0
    await reload(rig)
    assert await next_text(node) == "one"


class Claiming:
    """A job that is being claimed."""

    def __init__(self) -> None:
        self.reservation: Reservation | None = None

    def granted(self, reservation: Reservation) -> None:
        self.reservation = reservation

    def refused(self, reservation: Reservation, problem: Problem) -> None:
        raise AssertionError(problem)


async def test_a_reservation_that_is_given_up_lets_in_who_waits_for_room(rig: Rig) -> None:
    node = await started(rig, queue={"enabled": False})
    claiming = Claiming()
    relay = rig.gateway.parts.relay
    held = relay.reserve(Arrived("job1", "m", job=True), claiming)
    await rig.queue()
    await waits_for_room(rig)
    held.give_up()
    assert await next_text(node) == "one"


# -- who is in whose way


async def test_two_keys_of_one_user_share_its_bound_and_the_room_that_the_other_leaves(
    rig: Rig,
) -> None:
    keys = [
        {"name": "a", "key_env": "A", "user": "u"},
        {"name": "b", "key_env": "B", "user": "u"},
        ADMIN,
    ]
    node = await started(rig, keys=keys, environ=ENVIRON, queue={"max_per_user": 1})
    rig.headers = bearer("ROOT")
    _, running = await rig.run(node, headers=bearer("ROOT"))
    await rig.line_up(1, headers=bearer("B"))
    rig.headers = bearer("A")
    await waits_for_room(rig)
    await running.answer(OK)
    live = await node.next_call()
    assert text_of(live) == ""
    await live.answer(OK)
    assert await next_text(node) == "one"


async def test_a_model_that_is_busy_keeps_nobody_from_one_that_is_idle(rig: Rig) -> None:
    busy, idle = await rig.node(models=("m1",)), await rig.node(models=("m2",))
    await rig.start(busy, idle, queue={"profile": "nexus"})
    await rig.run(busy, model="m1")
    _, running = await rig.run(idle, model="m2")
    await waits_for_room(rig, "of m1", model="m1")
    await waits_for_room(rig, "of m2", model="m2")
    await running.answer(OK)
    assert await next_text(idle) == "of m2"


@pytest.mark.parametrize("count", [1, 6])
async def test_prompts_too_large_for_the_queue_keep_no_small_one_out(rig: Rig, count: int) -> None:
    node = await started(rig, queue={"max_size": 2, "max_bytes": 4000})
    await rig.run(node)
    gone, _ = await rig.line_up(2)
    for _ in range(count):
        await waits_for_room(rig, "large " * 1000)
    _, small = await waits_for_room(rig, "small")
    gone.abort()
    for _ in range(2000):
        if (await rig.get(f"/v1/queue/{small}")).status == 200:
            return
    raise AssertionError("the small one has not been let in")


async def test_users_of_one_trusted_key_are_not_in_each_others_way(rig: Rig) -> None:
    keys = [{"name": "a", "key_env": "A", "trust_user": True}, ADMIN]
    node = await started(rig, keys=keys, environ=ENVIRON, queue={"max_per_user": 1})
    rig.headers = bearer("ROOT")
    await rig.run(node, headers=bearer("ROOT"))
    live, prompts = {}, {}
    for user in ("ann", "bob"):
        headers = {**bearer("A"), "x-forebay-user": user}
        (live[user],) = await rig.line_up(1, headers=headers)
        session = (await Http(rig).new(headers, model="m")).body["sessionId"]
        prompts[user] = (await Http(rig).prompt(session, headers, prompt=user)).body["promptId"]
    live["bob"].abort()
    for _ in range(2000):
        if (await rig.get(f"/v1/queue/{prompts['bob']}")).status == 200:
            break
    assert (await rig.get(f"/v1/queue/{prompts['bob']}")).json["state"] == "waiting"
    assert (await rig.get(f"/v1/queue/{prompts['ann']}")).status == 404


async def test_one_that_goes_from_its_users_line_to_the_queues_strands_nobody_behind_it(
    rig: Rig,
) -> None:
    keys = [{"name": "a", "key_env": "A"}, {"name": "b", "key_env": "B", "trust_user": True}, ADMIN]
    queue = {"max_size": 2, "max_per_user": 1}
    node = await started(rig, keys=keys, environ=ENVIRON, queue=queue)
    rig.headers = bearer("ROOT")
    _, running = await rig.run(node, headers=bearer("ROOT"))
    (mine,) = await rig.line_up(1, headers=bearer("A"))
    rig.headers = bearer("A")
    first, _ = await waits_for_room(rig, "first")
    await waits_for_room(rig, "second")
    rig.headers = bearer("ROOT")
    await rig.line_up(1, headers={**bearer("B"), "x-forebay-user": "u1"})
    body = b'{"model": "m", "messages": []}'
    late = await rig.client()
    head = {**bearer("B"), "x-forebay-user": "u2", "content-length": str(len(body))}
    await late.request("POST", "/v1/chat/completions", body[:-1], head)
    await rig.queue()
    mine.abort()  # in the same moment somebody else takes the place in the queue
    await late.send(body[-1:])
    await rig.wait_until("waiting", 2)
    await Http(rig).cancel(first, bearer("A"))
    await running.answer(OK)
    for _ in range(4):
        call = await node.next_call()
        if text_of(call) == "second":
            return
        await call.answer(OK)
    raise AssertionError("the second was not asked")


async def test_who_waited_too_long_for_room_does_not_run_when_there_is_some(rig: Rig) -> None:
    node = await started(rig, queue={"enabled": False})
    _, running = await rig.run(node)
    session, prompt_id = await waits_for_room(rig)
    rig.clock.advance(60.0)
    await until_turn(rig, session, prompt_id, "failed")
    await running.answer(OK)
    await rig.wait_until("processing", 0)
    assert len(node.calls) == 1
