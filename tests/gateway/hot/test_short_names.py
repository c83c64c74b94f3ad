"""Ollama's short model names: `gemma3` is `gemma3:latest`, as its own users write it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..conftest import Rig


async def test_a_short_name_reaches_the_model_it_stands_for(rig: Rig) -> None:
    node = await rig.node(kind="ollama", models=("gemma3:latest",))
    await rig.start(node)
    client = await rig.ask("gemma3", "/api/chat", stream=False)
    call = await node.next_call()
    assert call.json["model"] == "gemma3:latest"
    await call.answer({"done": True})
    assert (await client.reply()).status == 200


async def test_a_model_of_exactly_that_name_comes_before_a_short_name(rig: Rig) -> None:
    ollama = await rig.node(kind="ollama", models=("gemma3:latest",))
    other = await rig.node(models=("gemma3",))
    await rig.start(ollama, other)
    client = await rig.ask("gemma3")
    call = await other.next_call()
    assert call.json["model"] == "gemma3"
    await call.answer({"choices": []})
    assert (await client.reply()).headers["x-forebay-node"] == "n2"


async def test_a_short_name_means_nothing_without_ollama(rig: Rig) -> None:
    node = await rig.node(models=("gemma3:latest",))
    await rig.start(node)
    assert (await (await rig.ask("gemma3")).reply()).status == 404
