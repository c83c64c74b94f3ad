"""A ledger that cannot be written, and a gateway that dies: every prompt has one end, told once.

What is told must hold after a crash, so what cannot be written is not told: the reader waits for
it, and who asks for an end is told that it cannot be had now.
"""

from __future__ import annotations

import shutil
from collections import Counter
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import OperationalError

from forebay.errors import StoreFailed
from forebay.sessions.ledger import SessionLedger
from forebay.storage.database import Database

from .session_faults import Broken, restart, start_again, until_refused, written
from .session_steps import (
    TERMINAL,
    Follower,
    Http,
    answer,
    delta,
    finish,
    follow,
    new_session,
    prompt,
    started,
    turn,
    until_turn,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from forebay.sessions.record import Recovered, SessionRecord
    from forebay.testing import FakeNode

    from ..conftest import Rig


def told(rig: Rig, session: str) -> bytes:
    """Return everything that readers of a session can be given now."""
    sessions = rig.gateway.parts.sessions._opening.value
    assert sessions is not None
    return b"".join(frame for _, frame in sessions._sessions[session].log._ring)


def copied(folder: Path) -> str:
    """Copy the database as it is in this moment; return the copy's address."""
    copy = folder / "after"
    copy.mkdir()
    for file in folder.glob("jobs.sessions.db*"):
        shutil.copy(file, copy)
    return f"sqlite:///{copy}/jobs.sessions.db"


async def killed(rig: Rig, away_s: float = 0.0) -> None:
    """Start another gateway on what a kill in this moment would leave in the database."""
    left = copied(rig.folder)
    await rig.gateway.stop(0.0)
    rig.clock.advance(away_s)
    rig.given["sessions"] = {"database": left}
    await start_again(rig)


def ends(*followers: Follower) -> Counter[str]:
    """Return how many ends of each prompt these were told."""
    seen = [event for follower in followers for event in follower.seen]
    return Counter(event["promptId"] for event in seen if event["type"] in TERMINAL)


async def with_prompts(
    rig: Rig, count: int = 3, **settings: Any
) -> tuple[FakeNode, str, list[str]]:
    """Start a gateway with a session of which the first prompt runs."""
    node = await started(rig, **settings)
    session = await new_session(rig)
    prompts = [await prompt(rig, session, f"number {place}") for place in range(count)]
    await node.next_call()
    await written(rig)
    return node, session, prompts


# -- outcomes that cannot be written


async def test_an_end_is_not_told_before_it_could_be_written_however_often_that_fails(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    node = await started(rig)
    session = await new_session(rig)
    events = await follow(rig, session)
    prompt_id = await prompt(rig, session)
    call = await node.next_call()
    await written(rig)
    broken = Broken(rig)
    await answer(call, "yes")
    for _ in range(3):
        await until_refused(rig, caplog)
        assert b"turn_complete" not in told(rig, session)
        caplog.clear()
        rig.clock.advance(2.0)
    await until_refused(rig, caplog)
    await broken.end()
    assert (await events.end_of(prompt_id))["text"] == "yes"
    await restart(rig)
    again = await follow(rig, session)
    assert (await again.end_of(prompt_id))["text"] == "yes"
    assert ends(again) == {prompt_id: 1}


async def test_cancelling_and_removing_are_refused_while_they_cannot_be_written(rig: Rig) -> None:
    _, session, prompts = await with_prompts(rig)
    broken = Broken(rig)
    path = f"/session/{session}/pending-prompts/{prompts[2]}"
    for said in (await Http(rig).ask("DELETE", path), await Http(rig).cancel(session)):
        assert (said.number, said.code) == (503, "store_unavailable")
        assert "retry-after" in said.headers
    assert b"turn_error" not in told(rig, session)
    events = await follow(rig, session)
    await broken.end()
    assert (await events.end_of(prompts[0]))["error"]["code"] == "cancelled"
    assert (await events.end_of(prompts[2]))["error"]["code"] == "removed"
    assert (await Http(rig).ask("DELETE", path)).number == 200


async def test_a_prompt_whose_removal_was_not_written_when_the_gateway_died_has_one_end(
    rig: Rig,
) -> None:
    node, session, prompts = await with_prompts(rig)
    before = await follow(rig, session)
    Broken(rig)
    await Http(rig).ask("DELETE", f"/session/{session}/pending-prompts/{prompts[2]}")
    await Http(rig).cancel(session)
    await node.next_call()  # the line moves on all the same
    await killed(rig)
    await before.to_the_end()
    after = await follow(rig, session)
    assert (await after.end_of(prompts[0]))["error"]["code"] == "outcome_unknown"
    for prompt_id in prompts[1:]:
        await answer(await node.next_call())
        await after.end_of(prompt_id)
    assert ends(before, after) == dict.fromkeys(prompts, 1)


async def test_what_cannot_be_written_at_shutdown_is_told_by_the_next_life(rig: Rig) -> None:
    node, session, prompts = await with_prompts(rig)
    before = await follow(rig, session)
    Broken(rig)
    await rig.gateway.stop(0.0)
    await before.to_the_end()
    assert before.seen[-1]["type"] == "stream_closed"
    assert ends(before) == {}
    await restart(rig)
    after = await follow(rig, session)
    assert (await after.end_of(prompts[0]))["error"]["code"] == "outcome_unknown"
    for prompt_id in prompts[1:]:
        await answer(await node.next_call(), "at last")
        assert (await after.end_of(prompt_id))["text"] == "at last"
    assert ends(after) == dict.fromkeys(prompts, 1)


async def test_what_comes_behind_an_unwritten_end_waits_for_it_and_none_of_it_is_lost(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    node = await started(rig)
    session = await new_session(rig)
    events = await follow(rig, session)
    first, second = await prompt(rig, session), await prompt(rig, session)
    call = await node.next_call()
    await written(rig)
    broken = Broken(rig)
    await answer(call, "one")
    call = await node.next_call()
    await call.start_stream()
    pieces = [f"{number} " for number in range(700)]
    for piece in pieces:
        await call.chunk(delta(piece))
    await until_turn(rig, session, second, "running")
    assert b"turn_complete" not in told(rig, session)
    await until_refused(rig, caplog)
    await broken.end()
    await events.end_of(first)
    await finish(call)
    end = await events.end_of(second)
    assert end["text"] == "".join(pieces)
    kinds = [(event["promptId"], event["type"]) for event in events.seen]
    assert kinds.index((first, "turn_complete")) < kinds.index((second, "text_delta"))
    said = [e["text"] for e in events.seen if (e["promptId"], e["type"]) == (second, "text_delta")]
    assert "".join(said) == end["text"]


async def test_a_session_that_is_deleted_behind_an_unwritten_end_tells_it_before_it_closes(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    node = await started(rig)
    session = await new_session(rig)
    events = await follow(rig, session)
    prompt_id = await prompt(rig, session)
    call = await node.next_call()
    await written(rig)
    broken = Broken(rig)
    await answer(call, "one")
    await until_refused(rig, caplog)
    broken.mend()
    assert (await Http(rig).ask("DELETE", f"/session/{session}")).ok
    await events.to_the_end()
    assert ends(events) == {prompt_id: 1}
    assert events.seen[-1]["type"] == "session_closed"


# -- commits of which nobody knows


def lose_the_next_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the next commit done, and then said to have failed, as a cut connection does."""
    commit = Database._commit

    def cut(self: Database, engine: Any, works: list[Any]) -> list[Any]:
        commit(self, engine, works)
        monkeypatch.undo()
        raise OperationalError("COMMIT", {}, Exception("the connection was lost"))

    monkeypatch.setattr(Database, "_commit", cut)


async def test_a_prompt_that_was_refused_in_doubt_does_not_run_after_a_restart(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(rig)
    session = await new_session(rig)
    lose_the_next_answer(monkeypatch)
    said = await Http(rig).prompt(session, prompt="refused")
    assert (said.number, said.code) == (503, "store_unavailable")
    await written(rig)
    await killed(rig)
    await prompt(rig, session, "accepted")
    call = await node.next_call()
    assert [message["content"] for message in call.json["messages"]] == ["accepted"]
    await answer(call)


async def test_an_end_whose_commit_was_in_doubt_is_told_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = await started(rig)
    session = await new_session(rig)
    events = await follow(rig, session)
    prompt_id = await prompt(rig, session)
    call = await node.next_call()
    await written(rig)
    lose_the_next_answer(monkeypatch)
    await answer(call, "yes")
    await until_refused(rig, caplog)
    rig.clock.advance(2.0)
    assert (await events.end_of(prompt_id))["text"] == "yes"
    await killed(rig)
    await events.to_the_end()
    assert ends(events) == {prompt_id: 1}
    again = await follow(rig, session)
    assert (await again.end_of(prompt_id))["id"] == (await events.end_of(prompt_id))["id"]


async def test_what_became_of_a_prompt_is_not_said_before_it_is_written(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    node = await started(rig)
    session = await new_session(rig)
    prompt_id = await prompt(rig, session)
    call = await node.next_call()
    await written(rig)
    broken = Broken(rig)
    await answer(call, "yes")
    await until_refused(rig, caplog)
    assert (await turn(rig, session, prompt_id))["status"] == "running"
    await broken.end()
    assert (await until_turn(rig, session, prompt_id, "completed"))["text"] == "yes"


# -- after a crash


async def test_after_a_kill_what_waited_waits_for_a_node_that_is_not_up_yet(rig: Rig) -> None:
    node, session, prompts = await with_prompts(rig)
    await node.stop_listening()
    node.drop_connections()
    await killed(rig)
    events = await follow(rig, session)
    assert (await events.end_of(prompts[0]))["error"]["code"] == "outcome_unknown"
    rig.clock.advance(30.0)
    await rig.queue()
    assert (await until_turn(rig, session, prompts[1], "queued", "failed"))["error"] is None
    await node.listen()
    await rig.until_node("n1", "online")
    for prompt_id in prompts[1:]:
        await answer(await node.next_call(), "late")
        assert (await events.end_of(prompt_id))["text"] == "late"


async def test_after_a_kill_what_waits_for_a_node_does_not_wait_for_ever(rig: Rig) -> None:
    node, session, prompts = await with_prompts(rig, 2)
    await node.stop_listening()
    node.drop_connections()
    await killed(rig)
    for _ in range(130):
        rig.clock.advance(1.0)
        await rig.queue()
    seen = await until_turn(rig, session, prompts[1], "failed")
    assert seen["error"]["code"] in ("no_node", "queue_timeout")


async def test_after_a_kill_a_prompt_whose_deadline_has_passed_is_never_sent(rig: Rig) -> None:
    node = await started(rig)
    session = await new_session(rig)
    await prompt(rig, session, "runs")
    await node.next_call()
    late = await prompt(rig, session, "late", deadlineMs=5000)
    last = await prompt(rig, session, "last")
    await written(rig)
    await killed(rig, away_s=100.0)
    events = await follow(rig, session)
    assert (await events.end_of(late))["error"]["code"] == "deadline_exceeded"
    await answer(await node.next_call(), "now")
    assert (await events.end_of(last))["text"] == "now"
    assert [call.json["messages"][-1]["content"] for call in node.calls] == ["runs", "last"]


async def test_a_ledger_that_fails_while_it_is_taken_over_has_nothing_run_twice(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, first, prompts = await with_prompts(rig, 2)
    second = await new_session(rig)
    load, asked = SessionLedger.load, Counter[str]()

    def fails_once(ledger: SessionLedger, record: SessionRecord) -> Future[Recovered]:
        asked[record.id] += 1
        if record.id == second and asked[second] == 1:
            refused: Future[Recovered] = Future()
            refused.set_exception(StoreFailed("no"))
            return refused
        return load(ledger, record)

    monkeypatch.setattr(SessionLedger, "load", fails_once)
    before = len(node.calls)
    await killed(rig)
    assert (asked[second], len(node.calls)) == (1, before)
    rig.clock.advance(5.0)
    await answer(await node.next_call(), "once")
    await until_turn(rig, first, prompts[1], "completed")
    assert len(node.calls) == before + 1
