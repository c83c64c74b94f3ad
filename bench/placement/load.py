"""Requests at random moments, whoever may be behind, and what became of them."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import defaultdict
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

import httpx

from bench.prefix.load import text

if TYPE_CHECKING:
    from collections.abc import Sequence

PROMPT_TOKENS = (20, 120)
ANSWER_TOKENS = (32, 96)
ANSWER_TOKENS_MEAN = sum(ANSWER_TOKENS) / 2
WAIT_S_MAX = 300.0


class Asked(NamedTuple):
    """A request that is to come."""

    at_s: float
    model: str
    prompt_tokens: int
    answer_tokens: int


class Answer(NamedTuple):
    """What became of a request."""

    at_s: float
    took_s: float
    """From its arrival, whenever it could be sent, to the end of the answer."""
    model: str
    node: str
    status: int


def arrivals(seed: int, per_s: float, seconds: float, models: Sequence[str]) -> list[Asked]:
    """Draw a Poisson process; each request wants any of the models."""
    draw = random.Random(seed)
    found: list[Asked] = []
    at_s = draw.expovariate(per_s)
    while at_s < seconds:
        lengths = draw.randint(*PROMPT_TOKENS), draw.randint(*ANSWER_TOKENS)
        found.append(Asked(at_s, draw.choice(models), *lengths))
        at_s += draw.expovariate(per_s)
    return found


async def ask(client: httpx.AsyncClient, url: str, asked: Asked, name: str) -> tuple[int, str]:
    """Ask with a text that nobody has seen; return the status, 0 for none, and who answered."""
    content = text(random.Random(f"{name} {asked.at_s}"), asked.prompt_tokens)
    body = {
        "model": asked.model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": asked.answer_tokens,
        "ignore_eos": True,
    }
    try:
        reply = await client.post(f"{url}/v1/chat/completions", json=body)
    except httpx.HTTPError:
        return 0, ""
    return reply.status_code, reply.headers.get("x-forebay-node") or reply.headers.get("x-node", "")


async def offer(
    client: httpx.AsyncClient, url: str, requests: Sequence[Asked], name: str
) -> list[Answer]:
    """Send each at its moment, however many are out; return the answers as they ended."""
    answers: list[Answer] = []
    begun_s = time.perf_counter()

    async def one(asked: Asked) -> None:
        await asyncio.sleep(begun_s + asked.at_s - time.perf_counter())
        status, node = await ask(client, url, asked, name)
        took_s = time.perf_counter() - begun_s - asked.at_s
        answers.append(Answer(asked.at_s, took_s, asked.model, node, status))

    await asyncio.gather(*map(one, requests))
    return answers


async def rate(
    client: httpx.AsyncClient, url: str, slots: int, seconds: float, model: str = "m"
) -> float:
    """Keep every slot of a node busy; return its answers a second."""
    begun_s, done = time.perf_counter(), 0
    requests = arrivals(0, 1.0, 20000.0, (model,))

    async def keep_busy(number: int) -> None:
        nonlocal done
        for asked in itertools.islice(requests, number, None, slots):
            if time.perf_counter() > begun_s + seconds:
                return
            status, _ = await ask(client, url, asked, f"rate {seconds} {url}")
            assert status == 200, status
            done += 1

    await asyncio.gather(*map(keep_busy, range(slots)))
    return done / (time.perf_counter() - begun_s)


def figures(answers: Sequence[Answer], first: tuple[str, ...]) -> dict[str, float]:
    """Return mean and p95, the share of the first node, and how often a node changed its model.

    `first` is how the names end that the gateways have for the first node.
    """
    good = [answer for answer in answers if answer.status == 200]
    times = sorted(answer.took_s for answer in good) or [0.0]
    ran: defaultdict[str, list[str]] = defaultdict(list)
    for answer in good:
        ran[answer.node].append(answer.model)
    changes = [one != other for models in ran.values() for one, other in itertools.pairwise(models)]
    return {
        "answers": len(good),
        "failed": len(answers) - len(good),
        "mean_s": round(mean(times), 4),
        "p95_s": round(times[int(0.95 * len(times))], 4),
        "first_share": round(mean([answer.node.endswith(first) for answer in good] or [0]), 3),
        "changes": sum(changes),
    }
