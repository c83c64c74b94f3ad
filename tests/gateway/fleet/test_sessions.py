"""Sessions asked for at a gateway that does not have them: the one that has them answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from forebay.sessions.record import replica_of

from ..sessions.session_steps import (
    Http,
    Rpc,
    answer,
    delta,
    finish,
    follow,
    look,
    new_session,
    post,
    prompt,
    turn,
    until_turn,
)
from .fleet_rig import A, B, two, until, until_readers, waiting

if TYPE_CHECKING:
    from ..conftest import Rig
    from .fleet_rig import FleetRig


async def test_an_id_names_its_gateway(fleet: FleetRig) -> None:
    wrong, owner, _ = await two(fleet)
    assert replica_of(await new_session(owner)) == B
    assert replica_of(await new_session(wrong)) == A
    made = await Rpc(wrong).new(model="m")
    assert replica_of(made.body["sessionId"]) == A


async def test_a_gateway_that_works_alone_names_nobody(rig: Rig) -> None:
    await rig.start(await rig.node())
    session = await new_session(rig)
    assert replica_of(session) is None
    assert len(session) == 36
    invented = f"ses_{B}_{'ab' * 16}"
    reply = await rig.get(f"/session/{invented}")
    assert (reply.status, reply.json["error"]["code"]) == (404, "session_not_found")


async def test_every_route_of_a_session_is_answered_by_its_gateway(fleet: FleetRig) -> None:
    wrong, owner, node = await two(fleet)
    session = await new_session(owner, system="be brief")
    assert await look(wrong, f"/session/{session}") == await look(owner, f"/session/{session}")
    first = await prompt(wrong, session, "one")
    call = await node.next_call()
    second = await prompt(wrong, session, "two")
    pending = await look(wrong, f"/session/{session}/pending-prompts")
    assert [one["promptId"] for one in pending["prompts"]] == [first, second]
    removed = await wrong.get(f"/session/{session}/pending-prompts/{second}", method="DELETE")
    assert removed.json == {"promptId": second, "removed": True}
    await answer(call, "an answer")
    await until_turn(wrong, session, first, "completed")
    assert (await turn(wrong, session, first))["text"] == "an answer"
    messages = await look(wrong, f"/session/{session}/messages")
    assert [one["content"] for one in messages["messages"]] == ["one", "an answer"]
    branched = await Http(wrong).branch(session)
    assert (branched.number, replica_of(branched.body["sessionId"])) == (201, B)
    third = await prompt(wrong, session, "three")
    await node.next_call()
    cancelled = await Http(wrong).cancel(session)
    assert (cancelled.body["promptId"], cancelled.body["cancelled"]) == (third, True)
    closed = await wrong.get(f"/session/{session}", method="DELETE")
    assert closed.json == {"sessionId": session, "state": "closed"}
    gone = await wrong.get(f"/session/{session}")
    assert (gone.status, gone.json["error"]["code"]) == (404, "session_not_found")


async def test_the_cap_and_its_exact_answer_come_through(fleet: FleetRig) -> None:
    wrong, owner, node = await two(fleet, sessions={"max_pending_prompts": 1})
    session = await new_session(owner)
    await prompt(wrong, session)
    call = await node.next_call()
    refused = await Http(wrong).prompt(session, prompt="more")
    assert (refused.number, refused.headers["retry-after"]) == (503, "5")
    assert set(refused.body) == {"code", "error", "sessionId", "limit", "pendingCount"}
    assert (await Rpc(wrong).prompt(session, prompt="more")).body == {
        "errorKind": "prompt_queue_full", "sessionId": session, "limit": 1, "pendingCount": 1,
    }  # fmt: skip
    await answer(call)


async def test_bad_input_is_refused_in_the_words_of_its_gateway(fleet: FleetRig) -> None:
    wrong, owner, _ = await two(fleet)
    session = await new_session(owner)
    for there in (wrong, owner):
        refused = await Http(there).prompt(session, prompt=7)
        assert (refused.number, refused.code, refused.body["param"]) == (
            400, "invalid_request", "prompt",
        )  # fmt: skip
        large = await post(there, f"/session/{session}/prompt", b"x" * 2_097_153)
        assert (large.status, large.json["error"]["code"]) == (413, "body_too_large")


async def test_events_are_followed_and_replayed_through_another(fleet: FleetRig) -> None:
    wrong, owner, node = await two(fleet)
    session = await new_session(owner)
    reader = await follow(wrong, session)
    first = await prompt(wrong, session)
    call = await node.next_call()
    await call.start_stream()
    await call.chunk(delta("hel"))
    assert (await reader.until("text_delta", first))["text"] == "hel"
    await call.chunk(delta("lo"))
    await finish(call)
    end = await reader.end_of(first)
    assert (end["type"], end["text"]) == ("turn_complete", "hello")
    again = await follow(wrong, session, {"Last-Event-ID": str(reader.seen[0]["id"])})
    assert (await again.end_of(first))["id"] == end["id"]
    by_query = await follow(wrong, session, query=f"?lastEventId={end['id'] - 1}")
    assert (await by_query.next() or {})["id"] == end["id"]
    bad = await wrong.get(f"/session/{session}/events", {"Last-Event-ID": "x"})
    assert (bad.status, bad.json["error"]["param"]) == (400, "Last-Event-ID")


async def test_head_has_no_body_and_follows_nothing(fleet: FleetRig) -> None:
    wrong, owner, _ = await two(fleet)
    session = await new_session(owner)
    for path in (f"/session/{session}", f"/session/{session}/events"):
        client = await wrong.client()
        await client.request("HEAD", path)
        head = await client.head()
        assert head.status == 200
    assert head.headers["content-type"].startswith("text/event-stream")
    await until_readers(owner, session, 0)


async def test_a_reader_that_leaves_is_gone_from_the_other_gateway(fleet: FleetRig) -> None:
    wrong, owner, _ = await two(fleet)
    session = await new_session(owner)
    reader = await follow(wrong, session)
    await until_readers(owner, session, 1)
    reader._client.close()
    await until_readers(owner, session, 0)


async def test_a_branch_that_nobody_waits_for_any_more_is_given_up(fleet: FleetRig) -> None:
    wrong, owner, node = await two(fleet)
    session = await new_session(owner)
    await prompt(owner, session)
    call = await node.next_call()
    client = await wrong.client()
    await client.request("POST", f"/session/{session}/branch")
    live = (await owner.gateway.parts.sessions.ready()).find(session, None)
    await until(owner, lambda: len(waiting(live)) == 1)
    client.close()
    await until(owner, lambda: not waiting(live))
    await answer(call)


async def test_large_history_comes_whole_through_another(fleet: FleetRig) -> None:
    wrong, owner, node = await two(fleet)
    session = await new_session(owner)
    text = "x" * 300_000
    first = await prompt(wrong, session, "big")
    await answer(await node.next_call(), text)
    await until_turn(wrong, session, first, "completed")
    client = await wrong.client()
    await client.get(f"/session/{session}/messages")
    reply = await client.reply()
    assert json.loads(reply.body)["messages"][1]["content"] == text
