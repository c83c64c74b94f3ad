"""Two real llama.cpp nodes: what they have computed of a conversation is found again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .conftest import CONTEXT_TOKENS, SLOTS, llama_cpp, ready_url

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from .conftest import Stage

SYSTEM = "The queue is waiting for the model. " * 60
TURNS = 5


async def converse(stage: Stage, name: str) -> list[int]:
    """Hold a conversation; return how many tokens were computed of the prompt of each turn."""
    messages = [{"role": "system", "content": f"{name} {SYSTEM}"}]
    computed = []
    for turn in range(TURNS):
        messages.append({"role": "user", "content": f"{name} asks again: {turn}"})
        reply: dict[str, Any] = (
            await (await stage.ask(messages=messages, max_tokens=8)).reply()
        ).json
        computed.append(reply["timings"]["prompt_n"])
        messages.append(reply["choices"][0]["message"])
    return computed


async def computed_in_later_turns(stage: Stage, *names: str) -> int:
    """Hold conversations, one after the other; return what was computed after their first turns.

    At the same time they would be spread: for so small a model a prompt is worth no pile.
    """
    conversations = [await converse(stage, name) for name in names]
    return sum(sum(turns[1:]) for turns in conversations)


async def test_later_turns_compute_less_than_half_of_what_they_do_elsewhere(
    stage: Stage, tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("--slots", str(SLOTS), "--context", str(CONTEXT_TOKENS))
    with llama_cpp(tiny_gguf, *flags) as one, llama_cpp(tiny_gguf, *flags) as other:
        gateway = await stage.start(ready_url(one), ready_url(other))
        with_cache = await computed_in_later_turns(stage, "one", "two", "three")
        monkeypatch.setattr(gateway.parts.nodes, "several", False)  # as with one node: unread
        without = await computed_in_later_turns(stage, "four", "five", "six")
        await stage.stack.aclose()
    assert 2 * with_cache < without
