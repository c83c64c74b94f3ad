"""Conversations of six turns with the lengths of a trace, and what each turn cost.

The lengths are deciles of the 528 conversations in Mooncake's synthetic trace (prompts with equal
hashes, one after another). First prompts and pauses are a sixteenth of theirs, because the model
and its nodes are small; questions and answers are not shortened, so that more of a prompt is new in
every turn than in the trace.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import httpx

TURNS = 6
SCALE = 16
FIRST_TOKENS = (3005, 4884, 8954, 14409, 17332, 21466, 29166, 37364, 47748)
QUESTION_TOKENS = (1, 2, 3, 5, 6, 11, 24, 112, 368)
ANSWER_TOKENS = (3, 6, 9, 12, 19, 28, 45, 71, 132)
PAUSE_S = (4.7, 10.5, 19.7, 35.2, 53.5, 79.4, 118.4, 167.3, 265.0)
WORDS = tuple(
    re.findall(
        r"\w+",
        """the of and to in is that for it as was with be by on not he his but at are this have
        from or had an they which one you were all her she there would their we him been has when
        who will no more if out so up said what its about than into them can only other time new
        some could these two may first then do any like my now over such our man me even most made
        after also well did many before must through back years where much your way down should
        because long each just state people those too little world still own between work water""",
    )
)
"""Each is one token of the model, so that a token has five bytes, about what it has in English."""


class Turn(NamedTuple):
    """What one turn cost."""

    computed: int
    """Tokens of the prompt that the engine computed."""
    prompt: int
    """Tokens of the prompt."""
    least: int
    """Tokens that were not in the conversation's last prompt or answer: no cache has those."""
    node: str
    """Empty where it is not told: in a stream that was opened before its turn had come."""
    first_token_s: float
    """From the request to the first piece of text, at the client."""
    prompt_s: float
    """What the engine took for the prompt, by its own clock."""


def drawn(draw: random.Random, deciles: Sequence[float]) -> float:
    """Draw from a distribution of which the deciles are known; the outer tenths are cut off."""
    at = draw.uniform(0, len(deciles) - 1)
    below = min(int(at), len(deciles) - 2)
    return deciles[below] + (at - below) * (deciles[below + 1] - deciles[below])


def text(draw: random.Random, tokens: float) -> str:
    """Return about so many tokens that nobody has seen."""
    return " ".join(draw.choice(WORDS) for _ in range(max(1, round(tokens))))


class Conversation:
    """One conversation, and its turns so far."""

    def __init__(self, seed: int, name: str, pace: float) -> None:
        """The seed decides lengths and pauses, the name what the texts are."""
        self._lengths = random.Random(seed)
        self._words = random.Random(name)
        self._pace = pace
        document = text(self._words, drawn(self._lengths, FIRST_TOKENS) / SCALE)
        self._messages = [{"role": "system", "content": document}]
        self._known_tokens = 0
        self.turns: list[Turn] = []

    async def hold(self, client: httpx.AsyncClient, url: str) -> None:
        """Ask turn after turn."""
        for _ in range(TURNS):
            await asyncio.sleep(drawn(self._lengths, PAUSE_S) / SCALE * self._pace)
            question = text(self._words, drawn(self._lengths, QUESTION_TOKENS))
            self._messages.append({"role": "user", "content": question})
            answer = await self._ask(client, url)
            self._messages.append({"role": "assistant", "content": answer})

    async def _ask(self, client: httpx.AsyncClient, url: str) -> str:
        tokens = round(drawn(self._lengths, ANSWER_TOKENS))
        body = {"model": "m", "messages": self._messages, "max_tokens": tokens, "stream": True}
        body["ignore_eos"] = True  # both sides' answers have the same lengths
        begun_s, first_s, answer = time.perf_counter(), 0.0, ""
        timings: dict[str, Any] = {}
        async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as reply:
            assert reply.status_code == 200, await reply.aread()
            node = reply.headers.get("x-forebay-node") or reply.headers.get("x-node", "")
            async for line in _lines(reply):
                told = _read(line)
                timings = told.get("timings", timings)
                piece = _piece(told)
                if piece and not first_s:
                    first_s = time.perf_counter() - begun_s
                answer += piece
        self._note(timings, node, first_s or time.perf_counter() - begun_s)
        return answer

    def _note(self, timings: dict[str, Any], node: str, first_s: float) -> None:
        computed = timings["prompt_n"]
        prompt = computed + timings["cache_n"]
        self.turns.append(
            Turn(
                computed,
                prompt,
                min(computed, max(1, prompt - self._known_tokens)),
                node,
                round(first_s, 4),
                round(timings["prompt_ms"] / 1000, 4),
            )
        )
        self._known_tokens = prompt + timings["predicted_n"]


async def _lines(reply: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the lines of a stream. httpx would also break them at the odd letters of the model."""
    rest = b""
    async for data in reply.aiter_bytes():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line


def _read(line: bytes) -> dict[str, Any]:
    """Return what a line of a stream says."""
    if not line.startswith(b"data: {"):
        return {}
    told: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
    assert "choices" in told, line
    return told


def _piece(told: dict[str, Any]) -> str:
    choices = told.get("choices")
    return str(choices[0]["delta"].get("content") or "") if choices else ""
