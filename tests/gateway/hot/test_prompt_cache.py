"""A conversation goes on where its prompt is cached, without any header."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..conftest import OK

if TYPE_CHECKING:
    from forebay.testing import FakeNode

    from ..conftest import Rig

SYSTEM = "The forebay is the still water above the turbines. " * 4000
"""50,000 tokens: 10 s of prefill, for which a test that looks meanwhile has time."""


SHORT = SYSTEM[:500]
"""A hundred tokens, and with the rest of a first turn a body of some 600 bytes."""


def conversation(name: str, turns: int, system: str = SYSTEM) -> list[dict[str, str]]:
    """Return the messages of a conversation that has had so many turns."""
    said = [{"role": "system", "content": f"{name}: {system}"}]
    for turn in range(turns):
        said.append({"role": "user", "content": f"question {turn}"})
        said.append({"role": "assistant", "content": f"answer {turn}"})
    return [*said, {"role": "user", "content": "and now?"}]


async def turn(rig: Rig, name: str, turns: int, system: str = SYSTEM) -> str:
    """Run one turn; return the node that served it."""
    reply = await (await rig.ask(messages=conversation(name, turns, system))).reply()
    assert reply.status == 200
    return str(reply.headers["x-forebay-node"])


async def answering_nodes(rig: Rig, count: int, slots: int) -> list[FakeNode]:
    """Start a gateway before nodes that answer at once, after a first request of a second."""
    nodes = [await rig.node(slots=slots) for _ in range(count)]
    await rig.start(*nodes)
    for node in nodes:
        await rig.measure(node, 1.0)
        node.automatic = lambda call: call.answer(OK)
    return nodes


async def test_every_turn_of_a_conversation_runs_on_the_node_of_the_first(rig: Rig) -> None:
    await answering_nodes(rig, 2, slots=4)
    first = {name: await turn(rig, name, 0) for name in "abcd"}
    assert len(set(first.values())) == 2, "without a cache they are spread"
    for turns in range(1, 4):
        for name, node in first.items():
            assert await turn(rig, name, turns) == node
    metrics = (await rig.get("/metrics")).body.decode().splitlines()
    values: dict[str, float] = {
        line.split()[0]: float(line.split()[1])
        for line in metrics
        if line[:15] == "forebay_prefix_"
    }
    hits, tokens = values["forebay_prefix_hit_tokens_total"], values["forebay_prefix_tokens_total"]
    assert 0.7 < hits / tokens < 0.8, "three turns of four"
    assert values["forebay_prefix_saved_seconds_total"] > 0


async def test_a_conversation_that_begins_short_stays_where_it_began(rig: Rig) -> None:
    await answering_nodes(rig, 2, slots=4)
    first = {name: await turn(rig, name, 0, SHORT) for name in "abc"}
    for name, node in reversed(first.items()):
        for turns in range(1, 4):
            assert await turn(rig, name, turns, SHORT) == node


async def test_one_that_waits_for_a_cache_is_told_so(rig: Rig) -> None:
    nodes = await answering_nodes(rig, 2, slots=1)
    name = await turn(rig, "a", 0)
    assert await turn(rig, "b", 0) != name
    node = nodes[int(name[1:]) - 1]
    node.automatic = None
    running = await rig.ask(messages=conversation("a", 1))
    call = await node.next_call()
    waiting = await rig.ask(messages=conversation("a", 2), headers={"X-Request-Id": "w"})
    await rig.wait_until("waiting", 1)
    seen: dict[str, Any] = (await rig.get("/v1/queue/w")).json
    cache, better = seen["cache"], seen["better_node"]
    assert cache["node"] == name
    assert cache["cached_tokens"] > 50_000
    assert cache["message"] == (
        f"waits for {name}: {cache['cached_tokens']:,} of {cache['prompt_tokens']:,} "
        "prompt tokens are cached there"
    )
    assert seen["reason"] == cache["message"]
    assert (better["node"], better["why"]) == (name, "prompt")
    assert better["cached_tokens"] == cache["cached_tokens"]
    await call.answer(OK)
    await (await node.next_call()).answer(OK)
    assert (await running.reply()).status == 200
    assert (await waiting.reply()).headers["x-forebay-node"] == name


async def test_with_one_node_prompts_are_not_looked_at(rig: Rig) -> None:
    await answering_nodes(rig, 1, slots=4)
    await turn(rig, "a", 0)
    assert "forebay_prefix_tokens_total 0.0" in (await rig.get("/metrics")).body.decode()
