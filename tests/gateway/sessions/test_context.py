"""A session and its model's context: what is sent, and what is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .session_steps import Http, Rpc, answer, delta, follow, look, new_session, prompt, say, started

if TYPE_CHECKING:
    from ..conftest import Rig


async def test_history_that_does_not_fit_now_is_sent_again_where_it_does(rig: Rig) -> None:
    node = await started(rig, context=2000)
    session = await new_session(rig)
    events = await follow(rig, session)
    for number in range(5):
        prompt_id = await prompt(rig, session, f"{number} " + "question " * 100)
        await answer(await node.next_call(), "word " * 200)
        await events.end_of(prompt_id)
    prompt_id = await prompt(rig, session, "small")
    call = await node.next_call()
    assert 1 < len(call.json["messages"]) < 11
    await answer(call)
    await events.end_of(prompt_id)
    node.context = 100_000
    for _ in range(200):
        if (await look(rig, f"/session/{session}"))["contextTokens"] == 100_000:
            break
        rig.clock.advance(0.5)
    await prompt(rig, session, "large")
    assert len((await node.next_call()).json["messages"]) == 13
    assert len((await look(rig, f"/session/{session}/messages"))["messages"]) == 12


async def test_a_model_that_ollama_has_unloaded_keeps_the_context_that_it_had(rig: Rig) -> None:
    node = await rig.node(kind="ollama", context=32_768)
    await rig.start(node)
    session = await new_session(rig)
    assert (await look(rig, f"/session/{session}"))["contextTokens"] == 32_768
    node.loaded = ()
    probes = node.probes
    while node.probes < probes + 6:
        rig.clock.advance(5.0)
        await rig.queue()
    assert (await look(rig, f"/session/{session}"))["contextTokens"] == 32_768


async def test_a_prompt_that_cannot_fit_into_the_context_is_413(rig: Rig) -> None:
    node = await started(rig, context=512)
    session = await new_session(rig)
    assert (await look(rig, f"/session/{session}"))["contextTokens"] == 512
    said = await Http(rig).prompt(session, prompt="word " * 1000)
    assert (said.number, said.code) == (413, "history_too_large")
    assert (await Rpc(rig).prompt(session, prompt="word " * 1000)).number == -32602
    assert (await look(rig, f"/session/{session}"))["pendingCount"] == 0
    await prompt(rig, session, "word " * 200)
    await answer(await node.next_call())


async def test_old_turns_are_dropped_when_the_context_is_full(rig: Rig) -> None:
    node = await started(rig, context=512)
    session = await new_session(rig, system="be brief")
    events = await follow(rig, session)
    sent = []
    for number in range(6):
        prompt_id = await prompt(rig, session, f"{number} " + "word " * 60)
        call = await node.next_call()
        sent.append(call.json["messages"])
        await call.start_stream()
        await call.chunk(delta(f"answer {number}"))
        await call.chunk(b"data: [DONE]\n\n")
        await call.end()
        await events.end_of(prompt_id)
    last = sent[-1]
    assert last[0] == {"role": "system", "content": "be brief"}
    assert last[-1]["content"].startswith("5 ")
    assert 3 <= len(last) < 2 + 2 * 5
    assert last[1]["content"].startswith(f"{(12 - len(last)) // 2} ")
    seen = await look(rig, f"/session/{session}")
    assert seen["droppedTurns"] == (12 - len(last)) // 2


async def test_a_template_that_adds_to_a_short_prompt_does_not_cost_the_history(rig: Rig) -> None:
    node = await started(rig)
    session = await new_session(rig)
    events = await follow(rig, session)
    prompt_id = await prompt(rig, session, "hi")
    await say(await node.next_call(), "word " * 800, prompt_tokens=30)
    await events.end_of(prompt_id)
    await prompt(rig, session, "go on")
    sent = (await node.next_call()).json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert (await look(rig, f"/session/{session}"))["droppedTurns"] == 0


async def test_a_node_that_counts_too_little_does_not_switch_trimming_off(rig: Rig) -> None:
    node = await started(rig, context=1000)
    session = await new_session(rig)
    events = await follow(rig, session)
    for _ in range(6):
        prompt_id = await prompt(rig, session, "question " * 20)
        call = await node.next_call()
        await say(call, "word " * 400, prompt_tokens=1)
        await events.end_of(prompt_id)
    sent = sum(len(message["content"]) for message in call.json["messages"])
    assert sent <= 4 * 1000  # no tokenizer packs more than some four bytes of prose into a token
    refused = await Http(rig).prompt(session, prompt="z " * 100_000)
    assert (refused.number, refused.code) == (413, "history_too_large")
