"""Sessions as their callers see them: ownership, bounds, events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..jobs.job_steps import ENVIRON, KEYS, bearer
from .session_steps import (
    Http,
    Rpc,
    answer,
    follow,
    look,
    new_session,
    prompt,
    started,
    until_turn,
)

if TYPE_CHECKING:
    from ..conftest import Rig


async def test_another_keys_session_is_404_and_an_admin_sees_it(rig: Rig) -> None:
    await started(rig, keys=KEYS, environ=ENVIRON)
    session = await new_session(rig, bearer("A"))
    for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("DELETE", "")):
        said = await Http(rig).ask(method, f"/session/{session}{path}", bearer("B"))
        assert (said.number, said.code) == (404, "session_not_found")
    said = await Http(rig).prompt(session, bearer("B"), prompt="mine?")
    assert said.code == "session_not_found"
    assert (await Rpc(rig).prompt(session, bearer("B"), prompt="x")).code == "session_not_found"
    assert (await look(rig, f"/session/{session}", bearer("ROOT")))["sessionId"] == session
    assert (await look(rig, f"/session/{session}", bearer("A")))["pendingCount"] == 0


async def test_a_prompt_whose_key_is_gone_from_the_settings_waits_until_it_is_back(
    rig: Rig,
) -> None:
    node = await started(rig, keys=KEYS, environ=ENVIRON)
    session = await new_session(rig, bearer("A"))
    events = await follow(rig, session, bearer("A"))
    ids = []
    for text in ("one", "two"):
        said = await Http(rig).prompt(session, bearer("A"), prompt=text)
        ids.append(said.body["promptId"])
    call = await node.next_call()
    rig.given["keys"] = KEYS[1:]
    assert (await rig.get("/admin/reload", bearer("ROOT"), "POST")).status == 200
    last = (await events.to_the_end())[-1]
    assert (last["type"], last["reason"]) == ("stream_closed", "unauthorized")
    events = await follow(rig, session, bearer("ROOT"))
    await answer(call)
    assert (await events.end_of(ids[0]))["type"] == "turn_complete"  # what runs may finish
    rig.clock.advance(120.0)  # longer than anything waits in the queue
    seen = await look(rig, f"/session/{session}/turns/{ids[1]}", bearer("ROOT"))
    assert seen["status"] == "queued"
    rig.given["keys"] = KEYS
    assert (await rig.get("/admin/reload", bearer("ROOT"), "POST")).status == 200
    await answer(await node.next_call())
    assert (await events.end_of(ids[1]))["type"] == "turn_complete"


async def test_a_key_may_use_its_models_only(rig: Rig) -> None:
    keys: list[dict[str, Any]] = [{"name": "a", "key_env": "A", "models": ["other"]}]
    await started(rig, keys=keys, environ=ENVIRON)
    said = await Http(rig).new(bearer("A"), model="m")
    assert (said.number, said.code, said.body["param"]) == (403, "forbidden", "model")


async def test_sessions_are_capped_in_number_and_a_deleted_one_makes_room(rig: Rig) -> None:
    await started(rig, sessions={"max_sessions": 2})
    first, _ = await new_session(rig), await new_session(rig)
    full = await Http(rig).new(model="m")
    assert (full.number, full.code) == (503, "too_many_sessions")
    assert int(full.headers["retry-after"]) >= 1
    assert (await Rpc(rig).new(model="m")).code == "too_many_sessions"
    assert (await Http(rig).branch(first)).code == "too_many_sessions"
    assert (await Http(rig).ask("DELETE", f"/session/{first}")).ok
    await new_session(rig)


async def test_sessions_that_race_do_not_pass_the_cap(rig: Rig) -> None:
    await started(rig, sessions={"max_sessions": 3})
    said = await asyncio.gather(*(Http(rig).new(model="m") for _ in range(20)))
    assert sum(one.ok for one in said) == 3


async def test_a_session_with_nothing_going_on_ends_after_a_while(rig: Rig) -> None:
    node = await started(rig, sessions={"idle_seconds": 600})
    idle, busy, watched = [await new_session(rig) for _ in range(3)]
    await prompt(rig, busy)
    await node.next_call()
    watching = await follow(rig, watched)
    rig.clock.advance(599.0)
    assert (await rig.get(f"/session/{idle}")).status == 200
    rig.clock.advance(61.0)
    for _ in range(2000):
        if (await rig.get(f"/session/{idle}")).status == 404:
            break
    assert (await rig.get(f"/session/{idle}")).status == 404
    for kept in (busy, watched):
        assert (await rig.get(f"/session/{kept}")).status == 200
    assert watching.seen == []


async def test_deleting_a_session_ends_everything_in_it(rig: Rig) -> None:
    node = await started(rig)
    session = await new_session(rig)
    events = await follow(rig, session)
    ids = [await prompt(rig, session) for _ in range(3)]
    call = await node.next_call()
    said = await Http(rig).ask("DELETE", f"/session/{session}")
    assert said.body == {"sessionId": session, "state": "closed"}
    await call.gone()
    seen = await events.to_the_end()
    ends = [event for event in seen if event["type"] == "turn_error"]
    assert [end["promptId"] for end in ends] == ids
    assert {end["error"]["code"] for end in ends} == {"session_closed"}
    assert (seen[-1]["type"], seen[-1]["reason"]) == ("session_closed", "deleted")
    assert (await rig.get(f"/session/{session}")).status == 404


async def test_the_place_of_a_session_is_free_after_every_failure(rig: Rig) -> None:
    node = await started(rig, sessions={"max_sessions": 2})
    session = await new_session(rig)
    prompt_id = await prompt(rig, session)
    await (await node.next_call()).answer({"error": {"message": "no"}}, 400)
    await until_turn(rig, session, prompt_id, "failed")
    for _ in range(3):
        other = await new_session(rig)
        assert (await Http(rig).new(model="m")).code == "too_many_sessions"
        assert (await Http(rig).ask("DELETE", f"/session/{other}")).ok
