"""One session, step by step: how its prompts end, and its branches."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from forebay.errors import StoreFailed
from forebay.sessions.errors import SessionRejected
from forebay.sessions.prompt_queue import BRANCHES_MAX
from forebay.sessions.record import Recovered

from .rig import Stage, settled

if TYPE_CHECKING:
    from forebay.sessions.prompt import Prompt


def error_of(stage: Stage, prompt: Prompt) -> str:
    (event,) = [e for e in stage.events() if e["promptId"] == prompt.id and "error" in e]
    code: str = event["error"]["code"]
    return code


async def test_a_running_prompt_is_cancelled_not_removed() -> None:
    stage = Stage()
    prompt = await stage.prompt()
    with pytest.raises(SessionRejected, match="cancel it"):
        stage.session.remove(prompt.id)


async def test_a_prompt_that_waits_in_the_queue_can_be_removed_and_leaves_it() -> None:
    stage = Stage()
    stage.queue.has_slot = False
    prompt = await stage.prompt()
    assert stage.session.remove(prompt.id) is True
    await settled()
    assert stage.queue.requests == []
    assert stage.session.queue.pending == 0


async def test_whoever_waits_for_an_outcome_to_be_written_does_not_wait_for_later_ones() -> None:
    stage = Stage()
    await stage.prompt()
    await stage.prompt()
    stage.ledger.automatic = False
    stage.session.cancel()
    settling = asyncio.ensure_future(stage.session.flush())
    await settled()
    stage.session.cancel()  # the next one, which has just begun
    while not settling.done():
        stage.ledger.commit()
        await settled()
    await settling
    assert stage.ledger.writes  # the second outcome is still on its way


async def test_whoever_waits_for_an_outcome_that_cannot_be_written_is_told() -> None:
    stage = Stage()
    await stage.prompt()
    stage.ledger.automatic = False
    stage.session.cancel()
    settling = asyncio.ensure_future(stage.session.flush())
    await settled()
    stage.ledger.refuse()
    stage.ledger.commit_all()
    with pytest.raises(StoreFailed):
        await settling


async def test_cancelling_where_nothing_runs_is_harmless() -> None:
    assert Stage().session.cancel() is None


async def test_a_deadline_ends_what_runs_and_frees_the_line_at_once() -> None:
    stage = Stage()
    first = await stage.prompt(deadline_s=5.0)
    second = await stage.prompt()
    request = stage.running
    stage.clock.advance(5.0)
    await settled()
    assert request.ended
    assert error_of(stage, first) == "deadline_exceeded"
    assert stage.running.id == second.id


async def test_a_deadline_runs_from_acceptance_not_from_the_start() -> None:
    stage = Stage()
    await stage.prompt()
    second = await stage.prompt(deadline_s=5.0)
    stage.clock.advance(3.0)
    stage.running.answer()
    await settled()
    assert second.status == "running"
    stage.clock.advance(2.0)
    await settled()
    assert error_of(stage, second) == "deadline_exceeded"


async def test_the_wait_for_room_does_not_count_against_the_wait_in_the_queue() -> None:
    stage = Stage()
    stage.queue.has_room = stage.queue.has_slot = False
    prompt = await stage.prompt()
    stage.clock.advance(30.0)
    stage.queue.has_room = True
    stage.waiters.try_all()
    await settled()
    stage.clock.advance(120.0)
    assert prompt.status == "queued"  # its limit is the queue's business now


async def test_a_branch_sees_what_was_before_it_and_not_what_came_after() -> None:
    stage = Stage()
    await stage.prompt("one")
    branch = asyncio.ensure_future(stage.session.branch())
    await settled()
    await stage.prompt("two")
    stage.running.answer("first")
    await settled()
    stage.running.answer("second")
    await settled()
    assert [turn.answer for turn in (await branch).turns] == ["first"]


async def test_branches_are_bounded() -> None:
    stage = Stage()
    await stage.prompt()
    tasks = [asyncio.ensure_future(stage.session.branch()) for _ in range(BRANCHES_MAX)]
    await settled()
    with pytest.raises(SessionRejected) as refused:
        await stage.session.branch()
    assert refused.value.problem.code == "branch_queue_full"
    stage.running.answer()
    await asyncio.gather(*tasks)


async def test_a_prompt_that_is_being_accepted_while_the_session_closes_gets_its_one_end() -> None:
    stage = Stage()
    stage.ledger.automatic = False
    prompt = stage.admit()
    accepting = asyncio.ensure_future(stage.session.accept(prompt))
    await settled()
    stage.session.closing = True
    stage.session.end_all("session_closed", "closed", running=True)
    stage.ledger.commit_all()
    await settled()
    stage.ledger.commit_all()
    await settled()
    await accepting
    assert error_of(stage, prompt) == "session_closed"
    assert stage.queue.submitted == 0


async def test_an_error_of_ours_fails_the_prompt_and_not_the_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    good, stage.queue.submit = stage.queue.submit, None  # type: ignore[method-assign, assignment]
    first = await stage.prompt()
    assert error_of(stage, first) == "internal_error"
    stage.queue.submit = good  # type: ignore[method-assign]
    second = await stage.prompt()
    assert stage.running.id == second.id
    assert "cannot submit prompt" in caplog.text


# -- after a restart


def left(*statuses: str) -> Recovered:
    """Return what a process left behind that died with prompts in these states."""
    stage = Stage()
    prompts = []
    for number, status in enumerate(statuses, 1):
        prompt = stage.admit(f"prompt {number}")
        prompt.status = status  # type: ignore[assignment]
        prompts.append(prompt)
    return Recovered(stage.session.record, prompts, {})


async def test_after_a_crash_what_ran_has_an_unknown_outcome_and_what_waited_goes_on() -> None:
    stage = Stage()
    stage.session = stage.make(life=1)
    found = left("running", "queued", "queued")
    stage.session.recover(found)
    await settled()
    assert error_of(stage, found.prompts[0]) == "outcome_unknown"
    assert stage.session.queue.pending == 2
    for prompt in found.prompts[1:]:
        assert stage.running.id == prompt.id
        stage.running.answer()
        await settled()
    assert stage.ledger.ends == [prompt.id for prompt in found.prompts]
    assert stage.session.queue.pending == 0


async def test_after_a_crash_numbers_of_events_go_on_rising() -> None:
    stage = Stage()
    await stage.prompt()
    before = stage.session.log.last_id
    again = stage.make(life=1)
    assert again.log.last_id > before + 1_000_000


async def test_after_a_crash_deadlines_still_count_from_acceptance() -> None:
    stage = Stage()
    found = left("queued", "queued")
    found.prompts[1].deadline_at = stage.deps.utc_s() - 1.0
    stage.session.recover(found)
    await settled()
    stage.clock.advance(0.0)
    await settled()
    assert error_of(stage, found.prompts[1]) == "deadline_exceeded"
