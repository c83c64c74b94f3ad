"""One session, step by step: its line and its events."""

from __future__ import annotations

import asyncio

from forebay.sessions.ledger_writer import RETRY_S

from .rig import Stage, settled


async def test_a_prompt_behind_another_is_announced_started_and_completed() -> None:
    stage = Stage()
    await stage.prompt()
    second = await stage.prompt()
    stage.running.answer()
    await settled()
    stage.running.answer("four")
    await settled()
    assert stage.kinds(second) == [
        "pending_prompt_added", "pending_prompt_started", "text_delta", "turn_complete",
        "pending_prompt_completed",
    ]  # fmt: skip


async def test_a_single_prompt_that_waits_in_the_queue_says_where_it_stands() -> None:
    stage = Stage()
    stage.queue.has_slot = False
    prompt = await stage.prompt()
    (added,) = stage.events()
    assert (added["position"], added["estimatedWaitSeconds"], added["waitsFor"]) == (
        1,
        2.0,
        "queue",
    )
    stage.clock.advance(1.5)
    stage.running.run()
    assert stage.events()[-1]["waitedMs"] == 1500
    assert prompt.status == "running"


async def test_a_prompt_is_promised_only_once_it_is_written() -> None:
    stage = Stage()
    stage.ledger.automatic = False
    prompt = stage.admit()
    accepting = asyncio.ensure_future(stage.session.accept(prompt))
    await settled()
    assert not accepting.done()
    assert stage.queue.submitted == 0
    stage.ledger.commit()
    await settled()
    assert await accepting == 0
    assert stage.queue.submitted == 1


async def test_whoever_waits_for_acceptance_may_leave_and_the_prompt_runs() -> None:
    stage = Stage()
    stage.ledger.automatic = False
    prompt = stage.admit()
    accepting = asyncio.ensure_future(stage.session.accept(prompt))
    await settled()
    accepting.cancel()
    await settled()
    stage.ledger.commit_all()
    await settled()
    stage.running.answer()
    stage.ledger.commit_all()
    await settled()
    assert stage.kinds(prompt)[-1] == "turn_complete"
    assert stage.session.queue.pending == 0


async def test_prompts_run_in_the_order_of_admission_even_if_written_together() -> None:
    stage = Stage()
    stage.ledger.automatic = False
    prompts = [stage.admit(f"{number}") for number in range(3)]
    tasks = [asyncio.ensure_future(stage.session.accept(prompt)) for prompt in prompts]
    await settled()
    stage.ledger.automatic = True
    stage.ledger.commit_all()
    await settled()
    ran = []
    for _ in prompts:
        ran.append(stage.running.id)
        stage.running.answer()
        await settled()
    assert ran == [prompt.id for prompt in prompts]
    await asyncio.gather(*tasks)


async def test_events_behind_an_unwritten_outcome_keep_their_order() -> None:
    stage = Stage()
    first = await stage.prompt()
    second = await stage.prompt()
    stage.ledger.automatic = False
    stage.running.answer()
    await settled()
    stage.running.say("early")
    assert stage.kinds(second) == ["pending_prompt_added"]
    stage.ledger.commit_all()
    await settled()
    kinds = [(e["promptId"], e["type"]) for e in stage.events()]
    assert kinds.index((first.id, "turn_complete")) < kinds.index((second.id, "text_delta"))


async def test_an_outcome_that_cannot_be_written_is_told_once_it_could_be() -> None:
    stage = Stage()
    prompt = await stage.prompt()
    second = await stage.prompt()
    stage.ledger.automatic = False
    stage.running.answer()
    stage.ledger.refuse()
    await settled()
    assert stage.kinds(prompt) == ["text_delta"]
    assert stage.running.id == second.id  # the line moves on
    stage.running.say("next")
    stage.clock.advance(RETRY_S)
    stage.ledger.commit_all()
    await settled()
    assert stage.ledger.rows[prompt.id] == "completed"
    assert stage.kinds(prompt)[-1] == "turn_complete"
    assert stage.kinds(second)[-1] == "text_delta"
