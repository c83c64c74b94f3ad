"""The cases that the original of specification 2 had to pass, by name, over both wires."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from forebay.settings import SettingsError, load_settings
from forebay.settings.model import SessionsSettings

from .session_steps import (
    TERMINAL,
    Http,
    Rpc,
    Wire,
    answer,
    delta,
    follow,
    look,
    new_session,
    prompt,
    turn,
)

if TYPE_CHECKING:
    from forebay.testing import Call, FakeNode

    from ..conftest import Rig


@pytest.fixture(params=[Http, Rpc], ids=["http", "json_rpc"])
def wire(request: pytest.FixtureRequest, rig: Rig) -> Wire:
    made: Wire = request.param(rig)
    return made


async def started(rig: Rig, **sessions: object) -> tuple[FakeNode, str]:
    """Start a gateway with one node of one slot, and make a session."""
    node = await rig.node()
    await rig.start(node, sessions=sessions)
    return node, await new_session(rig)


async def test_the_sixth_prompt_gets_503_with_the_full_body_and_no_prompt_id(rig: Rig) -> None:
    _, session = await started(rig)
    for _ in range(5):
        await prompt(rig, session)
    sixth = await Http(rig).prompt(session, prompt="one too many")
    assert sixth.number == 503
    assert sixth.body == {
        "code": "prompt_queue_full",
        "error": "this session has 5 prompts pending, and may have 5",
        "sessionId": session,
        "limit": 5,
        "pendingCount": 5,
    }
    assert sixth.headers["retry-after"] == "5"
    assert sixth.headers["retry-after-ms"] == "5000"
    assert sixth.headers["x-should-retry"] == "true"


async def test_the_sixth_prompt_gets_the_specified_error_over_json_rpc(rig: Rig) -> None:
    _, session = await started(rig)
    for _ in range(5):
        assert (await Rpc(rig).prompt(session, prompt="hi")).ok
    sixth = await Rpc(rig).prompt(session, prompt="one too many")
    assert sixth.number == -32000
    assert sixth.body == {
        "errorKind": "prompt_queue_full", "sessionId": session, "limit": 5, "pendingCount": 5,
    }  # fmt: skip


async def test_the_same_cap_is_shared_over_rest_and_json_rpc(rig: Rig) -> None:
    _, session = await started(rig, max_pending_prompts=2)
    assert (await Http(rig).prompt(session, prompt="a")).ok
    assert (await Rpc(rig).prompt(session, prompt="b")).ok
    for wire in (Http(rig), Rpc(rig)):
        assert (await wire.prompt(session, prompt="c")).code == "prompt_queue_full"


async def test_prompts_that_race_never_both_take_the_last_place(rig: Rig, wire: Wire) -> None:
    _, session = await started(rig)
    said = await asyncio.gather(*(wire.prompt(session, prompt=str(n)) for n in range(50)))
    assert sum(one.ok for one in said) == 5
    assert {one.code for one in said if not one.ok} == {"prompt_queue_full"}
    assert (await look(rig, f"/session/{session}"))["pendingCount"] == 5


async def test_a_slot_is_freed_after_completion_and_after_failure(rig: Rig, wire: Wire) -> None:
    node, session = await started(rig, max_pending_prompts=1)
    events = await follow(rig, session)
    for fails in (False, True, False):
        said = await wire.prompt(session, prompt="hi")
        assert said.ok, said
        assert (await wire.prompt(session, prompt="no")).code == "prompt_queue_full"
        call = await node.next_call()
        if fails:
            await call.answer({"error": {"message": "bad"}}, 400)
        else:
            await answer(call)
        end = await events.end_of(said.body["promptId"])
        assert end["type"] == ("turn_error" if fails else "turn_complete")
    assert (await look(rig, f"/session/{session}"))["pendingCount"] == 0


async def test_a_failed_prompt_does_not_poison_the_fifo(rig: Rig, wire: Wire) -> None:
    node, session = await started(rig)
    events = await follow(rig, session)
    ids = [(await wire.prompt(session, prompt=f"{n}")).body["promptId"] for n in range(3)]
    await (await node.next_call()).answer({"error": {"message": "bad"}}, 400)
    await answer(await node.next_call(), "two")
    await answer(await node.next_call(), "three")
    ends = [await events.end_of(prompt_id) for prompt_id in ids]
    assert [end["type"] for end in ends] == ["turn_error", "turn_complete", "turn_complete"]
    assert ends[0]["error"]["code"] == "node_refused"
    assert [end.get("text") for end in ends] == [None, "two", "three"]


async def test_a_prompt_whose_client_left_before_it_was_whole_is_not_counted(rig: Rig) -> None:
    _, session = await started(rig)
    client = await rig.client()
    head = f"POST /session/{session}/prompt HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    await client.send(head.encode() + b'content-length: 100\r\n\r\n{"prompt": "hal')
    client.abort()
    seen = await look(rig, f"/session/{session}")
    assert (seen["pendingCount"], seen["lastEventId"]) == (0, 0)


async def test_a_removed_prompt_is_still_counted_until_it_drains(rig: Rig, wire: Wire) -> None:
    node, session = await started(rig, max_pending_prompts=2)
    await wire.prompt(session, prompt="first")
    call = await node.next_call()
    second = (await wire.prompt(session, prompt="second")).body["promptId"]
    path = f"/session/{session}/pending-prompts"
    assert (await Http(rig).ask("DELETE", f"{path}/{second}")).body["removed"] is True
    full = await wire.prompt(session, prompt="third")
    assert (full.code, full.body["pendingCount"]) == ("prompt_queue_full", 2)
    assert [one["text"] for one in (await look(rig, path))["prompts"]] == ["first"]
    events = await follow(rig, session)
    await answer(call)
    await events.until("turn_complete")
    assert (await look(rig, path))["pendingCount"] == 0
    assert node.calls == [call]  # the removed one never ran


@pytest.mark.parametrize("cap", [0, "inf", float("inf")])
async def test_zero_and_infinity_disable_the_cap(rig: Rig, wire: Wire, cap: object) -> None:
    _, session = await started(rig, max_pending_prompts=cap)
    said = [await wire.prompt(session, prompt="hi") for _ in range(12)]
    assert all(one.ok for one in said)
    limits = (await look(rig, "/capabilities"))["limits"]
    assert limits["maxPendingPromptsPerSession"] is None


@pytest.mark.parametrize("cap", [-5, 1.5, float("nan"), "nan", "-5", True])
def test_caps_that_make_no_sense_are_refused_at_construction(cap: object) -> None:
    with pytest.raises(ValueError, match="whole number of at least 0"):
        SessionsSettings.model_validate({"max_pending_prompts": cap})


@pytest.mark.parametrize("cap", ["-5", "1.5", "nan"])
def test_caps_that_make_no_sense_are_refused_on_the_command_line(cap: str) -> None:
    with pytest.raises(SettingsError, match="max_pending_prompts"):
        load_settings(None, [f"sessions.max_pending_prompts={cap}"])


@pytest.mark.parametrize(("cap", "shown"), [(7, 7), (0, None)])
async def test_the_capability_is_null_or_explicit(rig: Rig, cap: int, shown: int | None) -> None:
    await rig.start(await rig.node(), sessions={"max_pending_prompts": cap})
    seen = await look(rig, "/capabilities")
    assert seen["limits"]["maxPendingPromptsPerSession"] == shown
    assert "/session/{session_id}/prompt" in seen["routes"]
    assert set(seen["versions"]) == {"forebay", "jsonrpc"}


async def test_a_single_prompt_emits_no_queue_events(rig: Rig, wire: Wire) -> None:
    node, session = await started(rig)
    events = await follow(rig, session)
    only = (await wire.prompt(session, prompt="hi")).body["promptId"]
    await answer(await node.next_call(), "a", "b")
    await events.end_of(only)
    assert [e["type"] for e in events.seen if "pending" in e["type"]] == []
    assert "".join(e["text"] for e in events.seen if e["type"] == "text_delta") == "ab"


async def test_removal_publishes_one_cancelled_terminal_and_twice_is_a_no_op(
    rig: Rig, wire: Wire
) -> None:
    node, session = await started(rig)
    events = await follow(rig, session)
    first = (await wire.prompt(session, prompt="hi")).body["promptId"]
    second = (await wire.prompt(session, prompt="gone")).body["promptId"]
    path = f"/session/{session}/pending-prompts/{second}"
    said = [(await Http(rig).ask("DELETE", path)).body["removed"] for _ in range(2)]
    assert said == [True, False]
    end = await events.end_of(second)
    assert (end["type"], end["status"], end["error"]["code"]) == (
        "turn_error", "cancelled", "removed",
    )  # fmt: skip
    assert (await turn(rig, session, second))["status"] == "cancelled"
    await answer(await node.next_call())
    await events.end_of(first)
    kinds = events.kinds(second)
    assert kinds == ["pending_prompt_added", "turn_error", "pending_prompt_completed"]


async def test_a_deadline_fires_while_the_prompt_is_still_queued(rig: Rig, wire: Wire) -> None:
    node, session = await started(rig)
    events = await follow(rig, session)
    await wire.prompt(session, prompt="hi")
    call = await node.next_call()
    second = (await wire.prompt(session, prompt="late", deadlineMs=2000)).body["promptId"]
    rig.clock.advance(2.0)
    assert (await events.end_of(second))["error"]["code"] == "deadline_exceeded"
    await answer(call)
    assert (await turn(rig, session, second))["status"] == "failed"


async def test_a_request_may_shorten_the_deadline_and_never_extend_it(rig: Rig, wire: Wire) -> None:
    node, session = await started(rig, prompt_deadline_ms=5000)
    events = await follow(rig, session)
    for asked, fires_at in ((1000, 1.0), (60_000, 5.0), (None, 5.0)):
        more: dict[str, Any] = {} if asked is None else {"deadlineMs": asked}
        prompt_id = (await wire.prompt(session, prompt="hi", **more)).body["promptId"]
        call = await node.next_call()
        rig.clock.advance(fires_at - 0.1)
        assert (await turn(rig, session, prompt_id))["status"] == "running"
        rig.clock.advance(0.1)
        assert (await events.end_of(prompt_id))["error"]["code"] == "deadline_exceeded"
        await call.gone()  # the node works for nobody


async def test_a_crash_of_the_node_gives_one_error_per_pending_prompt(rig: Rig, wire: Wire) -> None:
    node, session = await started(rig)
    events = await follow(rig, session)
    ids = [(await wire.prompt(session, prompt=f"{n}")).body["promptId"] for n in range(3)]
    call = await node.next_call()
    await call.start_stream()
    await call.chunk(delta("half an"))
    await events.until("text_delta")
    node.health = "error"
    node.automatic = _reset
    call.reset()
    ends = [await _end_with_time_passing(rig, session, prompt_id) for prompt_id in ids]
    assert [end["status"] for end in ends] == ["failed"] * 3
    assert {end["error"]["code"] for end in ends} <= {"node_failed", "no_node", "queue_timeout"}
    for prompt_id in ids:
        await events.end_of(prompt_id)
        assert sum(kind in TERMINAL for kind in events.kinds(prompt_id)) == 1
    assert (await look(rig, f"/session/{session}"))["pendingCount"] == 0


async def _reset(call: Call) -> None:
    call.reset()


async def _end_with_time_passing(rig: Rig, session: str, prompt_id: str) -> dict[str, Any]:
    for _ in range(400):
        seen = await turn(rig, session, prompt_id)
        if seen["status"] in ("completed", "failed", "cancelled"):
            return seen
        rig.clock.advance(0.5)
    raise AssertionError(f"{prompt_id} has no end: {seen}")


async def test_shutdown_flushes_queued_prompts(rig: Rig, wire: Wire) -> None:
    node, session = await started(rig)
    events = await follow(rig, session)
    first = (await wire.prompt(session, prompt="hi")).body["promptId"]
    call = await node.next_call()
    rest = [(await wire.prompt(session, prompt=f"{n}")).body["promptId"] for n in range(2)]
    stopping = asyncio.ensure_future(rig.gateway.stop(10.0))
    for prompt_id in rest:
        assert (await events.end_of(prompt_id))["error"]["code"] == "shutting_down"
    await answer(call, "I may finish")
    await stopping
    seen = await events.to_the_end()
    assert (await events.end_of(first))["text"] == "I may finish"
    assert (seen[-1]["type"], seen[-1]["reason"]) == ("stream_closed", "shutting_down")


async def test_the_status_shows_three_pending_and_two_queued(rig: Rig, wire: Wire) -> None:
    node, session = await started(rig)
    ids = [(await wire.prompt(session, prompt=f"p{n}")).body["promptId"] for n in range(3)]
    await node.next_call()
    seen = await look(rig, f"/session/{session}")
    assert (seen["pendingCount"], seen["queuedCount"], seen["limit"]) == (3, 2, 5)
    assert seen["activePromptId"] == ids[0]
    listed = (await look(rig, f"/session/{session}/pending-prompts"))["prompts"]
    assert [one["state"] for one in listed] == ["running", "queued", "queued"]
    assert [one["promptId"] for one in listed] == ids
    assert [one["text"] for one in listed] == ["p0", "p1", "p2"]
    metrics = (await rig.get("/metrics")).body.decode()
    assert "forebay_sessions_pending_prompts 3.0" in metrics


async def test_cancel_hits_only_the_active_prompt(rig: Rig, wire: Wire) -> None:
    node, session = await started(rig)
    events = await follow(rig, session)
    first = (await wire.prompt(session, prompt="a")).body["promptId"]
    second = (await wire.prompt(session, prompt="b")).body["promptId"]
    call = await node.next_call()
    said = await wire.cancel(session)
    assert said.body == {"promptId": first, "cancelled": True}
    await call.gone()
    end = await events.end_of(first)
    assert (end["status"], end["error"]["code"]) == ("cancelled", "cancelled")
    await answer(await node.next_call(), "on")
    assert (await events.end_of(second))["text"] == "on"
    assert (await wire.cancel(session)).body == {"promptId": None, "cancelled": False}


async def test_cancel_may_name_the_prompt_and_hits_no_other(rig: Rig, wire: Wire) -> None:
    node, session = await started(rig)
    first = (await wire.prompt(session, prompt="a")).body["promptId"]
    second = (await wire.prompt(session, prompt="b")).body["promptId"]
    await node.next_call()
    for wrong in (second, "prm_nobody"):
        said = await wire.cancel(session, promptId=wrong)
        assert said.body == {"promptId": None, "cancelled": False}
    assert (await wire.cancel(session, promptId=5)).body["param"] == "promptId"
    assert (await turn(rig, session, first))["status"] == "running"
    said = await wire.cancel(session, promptId=first)
    assert said.body == {"promptId": first, "cancelled": True}
    await answer(await node.next_call())


async def test_a_fast_turn_that_ends_before_its_202_is_seen_is_not_lost(rig: Rig) -> None:
    node, session = await started(rig)
    node.automatic = answer
    said = await Http(rig).prompt(session, prompt="hi")
    events = await follow(rig, session, {"last-event-id": str(said.body["lastEventId"])})
    assert (await events.end_of(said.body["promptId"]))["type"] == "turn_complete"


async def test_a_branch_waits_in_the_same_fifo_and_is_not_counted(rig: Rig, wire: Wire) -> None:
    node, session = await started(rig, max_pending_prompts=1)
    await wire.prompt(session, prompt="hi")
    call = await node.next_call()
    branching = asyncio.ensure_future(wire.branch(session))
    await rig.queue()
    assert not branching.done()
    assert (await look(rig, f"/session/{session}"))["pendingCount"] == 1
    await answer(call, "the answer")
    branch = (await branching).body["sessionId"]
    assert branch != session
    (asked, said) = (await look(rig, f"/session/{branch}/messages"))["messages"]
    assert (asked["content"], said["content"]) == ("hi", "the answer")
