"""What one key learns of another's prompts and conversations by guessing them: nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ..conftest import OK
from ..sessions.session_steps import answer
from .test_prompt_cache import conversation
from .test_users_and_keys import A, B, key, start

if TYPE_CHECKING:
    from forebay.testing import Call

    from ..conftest import Rig

SECRET, WRONG = "the code is 4711", "the code is 4712"
NODES = ("n1", "n2")


class Guesser:
    """Two keys at two nodes that answer when the test lets them, and all that the second sees."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.answers = asyncio.Event()

    async def start(self, **options: Any) -> None:
        nodes = [await self.rig.node(slots=1) for _ in NODES]
        for node in nodes:
            node.automatic = self.answer
        await start(self.rig, *nodes, keys=[key("a", **options), key("b", **options)])

    async def answer(self, call: Call) -> None:
        await self.answers.wait()
        await call.answer(OK)

    async def hits(self) -> float:
        lines = (await self.rig.get("/metrics")).body.decode().splitlines()
        name = "forebay_prefix_hit_tokens_total "
        return next(float(line.split()[1]) for line in lines if line.startswith(name))

    async def guess(self, text: str, *, busy: bool) -> dict[str, Any]:
        """Return what B sees of a guess, while A's own request runs where its prompt is cached."""
        rig, hits = self.rig, await self.hits()
        self.answers.clear()
        if busy:
            await rig.ask(messages=conversation(SECRET, 1), headers=A)
            await rig.wait_until("processing", 1)
        headers = {**B, "X-Request-Id": "guess"}
        client = await rig.ask(messages=conversation(text, 1), headers=headers)
        while (shown := await rig.get("/v1/queue/guess", B)).status == 404:
            pass  # a body of 200 KB is read in slices
        self.answers.set()
        reply = await client.reply()
        await rig.wait_until("processing", 0)
        told = ("state", "position", "reason", "reason_code", "cache", "estimated_wait_seconds")
        return {
            **{name: shown.json[name] for name in told},
            **{name: reply.headers[name] for name in ("x-forebay-node", "x-queue-status")},
            "hits": await self.hits() - hits,
        }


async def seen(rig: Rig, text: str, *, busy: bool, **options: Any) -> dict[str, Any]:
    """Return what a key sees that guesses the system prompt of another, which n1 has cached."""
    guesser = Guesser(rig)
    await guesser.start(**options)
    guesser.answers.set()
    first = await (await rig.ask(messages=conversation(SECRET, 0), headers=A)).reply()
    assert first.headers["x-forebay-node"] == "n1"
    told = await guesser.guess(text, busy=busy)
    await rig.gateway.stop(0.0)
    return told


@pytest.mark.parametrize("busy", [False, True])
async def test_a_right_guess_of_another_key_s_prompt_looks_like_a_wrong_one(
    rig: Rig, busy: bool
) -> None:
    right, wrong = await seen(rig, SECRET, busy=busy), await seen(rig, WRONG, busy=busy)
    assert right == wrong
    assert (right["cache"], right["x-queue-status"], right["x-forebay-node"]) == (
        None, "direct", "n2",
    )  # fmt: skip


@pytest.mark.parametrize("busy", [False, True])
async def test_keys_that_share_prefixes_use_each_other_s_caches(rig: Rig, busy: bool) -> None:
    shown = await seen(rig, SECRET, busy=busy, share_prefixes=True)
    assert shown["x-forebay-node"] == "n1"
    assert shown["x-queue-status"] == ("queued" if busy else "direct"), "it waits for the cache"
    assert shown["cache"]["cached_tokens"] > 50_000
    assert shown["hits"] > 50_000


async def talk(rig: Rig, name: str, headers: dict[str, str]) -> str:
    """Say something in a conversation; return the node that it ran on."""
    client = await rig.ask(headers={**headers, "X-Forebay-Session": name})
    return str((await client.reply()).headers["x-forebay-node"])


USERS = [{**A, "X-Forebay-User": name} for name in ("ann", "bob")]


@pytest.mark.parametrize(("mine", "other"), [(A, B), USERS], ids=["keys", "users"])
async def test_a_conversation_is_its_user_s_whatever_others_call_theirs(
    rig: Rig, mine: dict[str, str], other: dict[str, str]
) -> None:
    guesser = Guesser(rig)
    await guesser.start(trust_user=True)
    guesser.answers.set()
    nodes = [await talk(rig, "x", other), await talk(rig, "mine", mine)]
    assert nodes == ["n1", "n2"], "spread, as neither is known"
    assert await talk(rig, "mine", other) == "n1", "the least recently used, as for any other name"
    assert await talk(rig, "mine", mine) == "n2", "and the other did not take it along"


async def test_a_session_is_no_conversation_of_another_key(rig: Rig) -> None:
    nodes = [await rig.node(slots=1) for _ in NODES]
    await start(rig, *nodes, keys=[key("a"), key("b")])
    client = await rig.client()
    await client.post("/session", {"model": "m"}, A)
    session = (await client.reply()).json["sessionId"]
    await client.post(f"/session/{session}/prompt", {"prompt": "hi"}, A)
    await client.reply()
    await answer(await nodes[0].next_call())
    await rig.wait_until("processing", 0)
    client, call = await rig.run(nodes[1], headers={**B, "X-Forebay-Session": session})
    await call.answer(OK)
    assert (await client.reply()).headers["x-forebay-node"] == "n2"
