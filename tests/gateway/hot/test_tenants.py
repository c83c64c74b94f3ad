"""What one key learns of another's prompts and conversations by guessing them: nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ..conftest import OK
from .test_prompt_cache import conversation
from .test_users_and_keys import A, B, key, start

if TYPE_CHECKING:
    from forebay.testing import Call

    from ..conftest import Rig

SECRET, WRONG = "the code is 4711", "the code is 4712"


TOLD = ("state", "position", "reason", "cache", "estimated_wait_seconds")


async def start_two(rig: Rig, **options: Any) -> asyncio.Event:
    """Start a gateway with two keys and two nodes, which answer while the event is set."""
    answers = asyncio.Event()
    answers.set()

    async def automatic(call: Call) -> None:
        await answers.wait()
        await call.answer(OK)

    nodes = [await rig.node(slots=1), await rig.node(slots=1)]
    await start(rig, *nodes, keys=[key("a", **options), key("b", **options)])
    for node in nodes:
        await rig.measure(node, 1.0, headers=A)
        node.automatic = automatic
    return answers


async def seen(rig: Rig, guess: str, *, busy: bool, **options: Any) -> list[object]:
    """Return what a key sees that guesses the system prompt of another, which n1 has cached.

    `busy`: the other key's next turn runs there.
    """
    answers = await start_two(rig, **options)
    first = await (await rig.ask(messages=conversation(SECRET, 0), headers=A)).reply()
    assert first.headers["x-forebay-node"] == "n1"
    answers.clear()
    if busy:
        await rig.ask(messages=conversation(SECRET, 1), headers=A)
        await rig.wait_until("processing", 1)
    headers = {**B, "X-Request-Id": "guess"}
    client = await rig.ask(messages=conversation(guess, 1), headers=headers)
    while (shown := await rig.get("/v1/queue/guess", B)).status == 404:
        pass  # a body of 200 KB is read in slices
    answers.set()
    reply = await client.reply()
    await rig.wait_until("processing", 0)
    lines = (await rig.get("/metrics", B)).body.decode().splitlines()
    hits = [line for line in lines if line.startswith("forebay_prefix_hit_tokens_total")]
    await rig.gateway.stop(0.0)
    told = [reply.headers["x-forebay-node"], reply.headers["x-queue-status"], *hits]
    return [*told, *(shown.json[name] for name in TOLD)]


@pytest.mark.parametrize("busy", [False, True])
async def test_a_right_guess_of_another_key_s_prompt_looks_like_a_wrong_one(
    rig: Rig, busy: bool
) -> None:
    right = await seen(rig, SECRET, busy=busy)
    assert right == await seen(rig, WRONG, busy=busy)
    assert right[:2] == ["n2", "direct"]


@pytest.mark.parametrize("busy", [False, True])
async def test_keys_that_share_prefixes_use_each_other_s_caches(rig: Rig, busy: bool) -> None:
    shown = await seen(rig, SECRET, busy=busy, share_prefixes=True)
    assert shown[:2] == ["n1", "queued" if busy else "direct"]
    assert "prompt tokens are cached there" in str(shown)


async def talk(rig: Rig, name: str, headers: dict[str, str]) -> str:
    """Say something in a conversation; return the node that it ran on."""
    client = await rig.ask(headers={**headers, "X-Forebay-Session": name})
    return str((await client.reply()).headers["x-forebay-node"])


USERS = [{**A, "X-Forebay-User": name} for name in ("ann", "bob")]


@pytest.mark.parametrize(("mine", "other"), [(A, B), USERS], ids=["keys", "users"])
async def test_a_conversation_is_its_user_s_whatever_others_call_theirs(
    rig: Rig, mine: dict[str, str], other: dict[str, str]
) -> None:
    await start_two(rig, trust_user=True)
    nodes = [await talk(rig, "x", other), await talk(rig, "mine", mine)]
    assert nodes == ["n1", "n2"], "spread, as neither is known"
    assert await talk(rig, "mine", other) == "n1", "the least recently used, as for any other name"
    assert await talk(rig, "mine", mine) == "n2", "and the other did not take it along"


async def test_a_session_is_no_conversation_of_another_key(rig: Rig) -> None:
    await start_two(rig)
    client = await rig.client()
    await client.post("/session", {"model": "m"}, A)
    session = (await client.reply()).json["sessionId"]
    await client.post(f"/session/{session}/prompt", {"prompt": "hi"}, A)
    assert (await client.reply()).status == 202
    await rig.wait_until("served_total", 3)
    assert await talk(rig, session, B) == "n2", "the least recently used"
