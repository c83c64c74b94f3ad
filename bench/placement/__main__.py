"""How long requests take from arrival to the end of the answer, where nodes are not alike.

    python -m bench.placement --part speed [--threads 8,2] [--loads 0.1,0.5] [--seconds 20]
    python -m bench.placement --part models [--out FILE]
    python -m bench.placement --part slots [--engine URL] [--at-once 16] [--clients 32]

*speed*: two real llama.cpp nodes with unlike numbers of threads and two slots each. *models*: two
simulated nodes with two slots that wait in a line of their own (`ollama_like.py`) and load a model
in two seconds; each has both models and keeps one in memory. *slots*: how many requests at once
Forebay finds for one engine that does not say, against fixed numbers, with all clients always
asking; the engine is llama.cpp with so many slots, or what answers at URL.

In front of the nodes, in turn (*speed*, *models*): Forebay,
HAProxy (`balance leastconn`, `maxconn` as many as slots), and with *speed* Forebay in front of the
first node alone.

The load is a Poisson process: a share of what both nodes answer with all slots busy (measured with
both at once; calculated, without loads, for *models*). Moments, lengths and models of the requests
are the same for all; texts are not, so that no cache knows them. What is in front is started anew
for each cell, and learns from requests that are not counted: a quarter as long as the cell.
Forebay also judges by how busy a node was in the last five minutes; a short cell with a high load
shows the first minute of a rush.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from bench.placement.load import (
    ANSWER_TOKENS_MEAN,
    WAIT_S_MAX,
    Asked,
    arrivals,
    ask,
    figures,
    offer,
    rate,
)
from bench.placement.ollama_like import OllamaLike
from bench.prefix.__main__ import in_front, llama_cpp, served
from bench.prefix.load import WORDS
from forebay.nodes.sim.engine import SimOptions
from harness.tiny_model import Size, write_tiny_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from harness.fleet.program import Program

SLOTS = 2
SIZE = Size(layers=8, width=512, hidden=1408, heads=8)
SIM = SimOptions(
    models=("a", "b"), slots=SLOTS, ttft_s=0.05, tokens_per_second=128.0, load_s=2.0
)  # fmt: skip
LOADS = {"speed": "0.1,0.3,0.5,0.7,0.9", "models": "0.1,0.3,0.5", "slots": "1"}
FIXED = (1, 2, 4, 8, 16, 32, 64)
PAYLOADS = {
    "speed": "llama.cpp, random Llama of 26 million parameters (F32); 20-120 tokens in, 32-96 out",
    "models": "simulated, models a and b, loads of 2 s; an answer takes 0.5 s; half want each",
    "slots": "20-120 tokens in, 32-96 out; every client asks again at once",
}
LEARNED_SHARE = 0.25
"""Of a cell's length, before it, for learning."""
START_S = 30.0
ONE_NODE = """
[[nodes]]
name = "n0"
url = "{url}"
kind = "openai-compatible"
slots = {slots}
"""
NO_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=0)

Sides = dict[str, tuple[str, list[str]]]
"""By name: the program, and the nodes that it has."""


@contextlib.asynccontextmanager
async def running(
    program_name: str, nodes: list[str], client: httpx.AsyncClient, model: str
) -> AsyncIterator[str]:
    """Run what is in front; yield its address once it answers."""
    with tempfile.TemporaryDirectory() as folder:
        program, url = in_front(Path(folder), nodes, SLOTS)[program_name]
        async with ready(program, url, client, model):
            yield url


@contextlib.asynccontextmanager
async def ready(
    program: Program, url: str, client: httpx.AsyncClient, model: str
) -> AsyncIterator[None]:
    """Run a program until the end of the block, which begins when a request is answered."""
    program.start()
    try:
        async with asyncio.timeout(START_S):
            while not await answers(client, url, model):  # noqa: ASYNC110 - it sets no event
                await asyncio.sleep(0.05)
        yield
    finally:
        await program.stop()


async def answers(client: httpx.AsyncClient, url: str, model: str) -> bool:
    status, _ = await ask(client, url, Asked(0.0, model, 1, 1), "start")
    return status == 200


async def measure(
    options: argparse.Namespace, per_s: float, sides: Sides, models: Sequence[str]
) -> list[dict[str, Any]]:
    """Put every load through every side, turn and turn about."""
    cells: list[dict[str, Any]] = []
    learning_s = options.seconds * LEARNED_SHARE
    async with httpx.AsyncClient(timeout=WAIT_S_MAX, trust_env=False, limits=NO_LIMITS) as client:
        for number, load in enumerate(options.loads):
            requests = arrivals(
                options.seed + number, load * per_s, learning_s + options.seconds, models
            )
            for name in sorted(sides, reverse=number % 2 == 1):
                program_name, nodes = sides[name]
                async with running(program_name, nodes, client, models[0]) as url:
                    taken = await offer(client, url, requests, f"{name} {load}")
                counted = [answer for answer in taken if answer.at_s >= learning_s]
                found = figures(counted, (nodes[0].rpartition(":")[2], "n0"))
                cells.append({"load": load, "side": name, **found})
                print(cells[-1], flush=True)
    return cells


async def speed(options: argparse.Namespace) -> dict[str, Any]:
    """Compare on two llama.cpp nodes, the first of which has the most threads."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        gguf = write_tiny_model(Path(folder) / "model.gguf", size=SIZE, words=WORDS)
        nodes = [
            stack.enter_context(llama_cpp(gguf, 0, SLOTS, threads)) for threads in options.threads
        ]
        async with httpx.AsyncClient(timeout=60.0, trust_env=False, limits=NO_LIMITS) as client:
            for length_s in (1.0, options.seconds / 4):  # the first is to warm up
                rates = await asyncio.gather(*(rate(client, url, SLOTS, length_s) for url in nodes))
        print("answers a second, all slots busy:", [round(each, 2) for each in rates], flush=True)
        sides = {
            "forebay": ("forebay", nodes),
            "haproxy": ("haproxy", nodes),
            "fast alone": ("forebay", nodes[:1]),
        }
        cells = await measure(options, sum(rates), sides, ("m",))
    return {"threads": options.threads, "answers_per_s": rates, "cells": cells}


async def models(options: argparse.Namespace) -> dict[str, Any]:
    """Compare on two simulated nodes with two models."""
    nodes = [OllamaLike(SIM), OllamaLike(SIM)]
    try:
        for node in nodes:
            await node.start()
        urls = [node.url for node in nodes]
        per_s = len(nodes) * SLOTS / (SIM.ttft_s + (ANSWER_TOKENS_MEAN - 1) / SIM.tokens_per_second)
        sides = {name: (name, urls) for name in ("forebay", "haproxy")}
        cells = await measure(options, per_s, sides, SIM.models)
    finally:
        for node in nodes:
            await node.stop()
    return {"answers_per_s": per_s, "cells": cells}


async def slots(options: argparse.Namespace) -> dict[str, Any]:
    """Compare the number that is found with fixed ones, twice each, on one engine."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        url = options.engine
        if url is None:
            gguf = write_tiny_model(Path(folder) / "model.gguf", size=SIZE, words=WORDS)
            url = stack.enter_context(llama_cpp(gguf, 0, options.at_once, options.threads[0]))
        fixed = [number for number in FIXED if number <= options.clients]
        cells = []
        async with httpx.AsyncClient(timeout=WAIT_S_MAX, trust_env=False, limits=NO_LIMITS) as http:
            for number in ("auto", *fixed, *reversed(fixed), "auto"):
                settings = Path(folder) / "forebay.toml"
                settings.write_text(ONE_NODE.format(url=url, slots=json.dumps(number)))
                program, gateway = served(Path(folder), ["--config", str(settings)])
                async with ready(program, gateway, http, options.model):
                    learning_s = options.seconds * (3 if number == "auto" else 0.2)
                    await rate(http, gateway, options.clients, learning_s, options.model)
                    per_s = await rate(
                        http, gateway, options.clients, options.seconds, options.model
                    )
                    (node,) = (await http.get(f"{gateway}/admin/nodes")).json()["data"]
                cells.append({"slots": number, "ended_at": node["slots"], "answers_per_s": per_s})
                print(cells[-1], flush=True)
    best = max(cell["answers_per_s"] for cell in cells if cell["slots"] != "auto")
    for cell in cells:
        cell["of_best"] = round(cell["answers_per_s"] / best, 3)
    return {"cells": cells}


def print_slots(cells: list[dict[str, Any]]) -> None:
    """Print a line for each run."""
    for cell in cells:
        print(
            f"{cell['slots']!s:>5} slots, {cell['ended_at']:4d} at the end: "
            f"{cell['answers_per_s']:8.2f} answers/s, {cell['of_best']:.0%} of the best"
        )


def print_table(cells: list[dict[str, Any]]) -> None:
    """Print a line for each load, and in it mean, p95, share of the first node, and changes."""
    sides = sorted({cell["side"] for cell in cells})
    print(f"{'load':>4} ", *(f"{side:>14} mean s   p95 s  1st chg fail" for side in sides))
    for load in sorted({cell["load"] for cell in cells}):
        row = {cell["side"]: cell for cell in cells if cell["load"] == load}
        of = [row[side] for side in sides]
        print(f"{load:4.2f} ", *(
            f"{cell['mean_s']:21.3f}{cell['p95_s']:8.3f}{cell['first_share']:5.0%}"
            f"{cell['changes']:4d}{cell['failed']:5d}" for cell in of
        ))  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--part", choices=sorted(LOADS), required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--loads")
    parser.add_argument("--threads", default="8,2")
    parser.add_argument("--engine", help="address of the engine of --part slots")
    parser.add_argument("--model", default="m", help="its model")
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.loads = [float(word) for word in (options.loads or LOADS[options.part]).split(",")]
    options.threads = [int(word) for word in options.threads.split(",")]
    each = f"{options.at_once} at once" if options.part == "slots" else f"{SLOTS} slots each"
    print(f"{options.part}: {PAYLOADS[options.part]}; {each}", flush=True)
    found = asyncio.run({"speed": speed, "models": models, "slots": slots}[options.part](options))
    (print_slots if options.part == "slots" else print_table)(found["cells"])
    if options.out is not None:
        about = {"part": options.part, "payload": PAYLOADS[options.part], "slots": SLOTS}
        about |= {"seconds": options.seconds, "seed": options.seed}
        options.out.write_text(json.dumps({**about, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
