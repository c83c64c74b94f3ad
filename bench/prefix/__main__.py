"""How much sooner later turns begin when they go where their prompt is cached.

    python -m bench.prefix [--rounds 4] [--conversations 6] [--seed 1] [--out results.json]

Two real llama.cpp nodes with two slots each and a random model of 3 million parameters. In front
of both, in turn, Forebay and HAProxy (`balance leastconn`, `maxconn` as many as slots: the node
with the fewest requests). In a round, so many conversations of six turns are held at the same time:
a system text of about 400 tokens, questions of 20 to 200, answers of 16, pauses in between. Texts
are new in every round, so no prompt is known from before; both sides get conversations of the same
lengths. Time to first token is taken at the client, from its request to the first piece of text,
and contains the wait.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import httpx

from harness.fleet.balancer import haproxy_binary
from harness.fleet.ports import free_port
from harness.fleet.program import Program
from harness.preloaded import COMMAND
from harness.tiny_model import Size, write_tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator

TURNS = 6
SLOTS = 2
CONTEXT_TOKENS = 4096
LIMIT_S = 120.0
MODEL = Size(layers=4, width=256, hidden=704, heads=4)
WORDS = ("queue", "water", "node", "slot", "wait", "turn", "the", "and", "is")

HAPROXY = """
defaults
    mode http
    timeout connect 5s
    timeout client 120s
    timeout server 120s
    timeout queue 120s
listen nodes
    bind 127.0.0.1:{port}
    balance leastconn
    option http-server-close
{servers}
"""


def text(draw: random.Random, tokens: int) -> str:
    """Return about so many tokens that nobody has seen: a word is about three."""
    return " ".join(draw.choice(WORDS) for _ in range(tokens // 3))


class Conversation:
    """One conversation: the times to first token of its turns."""

    def __init__(self, seed: int, name: str) -> None:
        """The seed decides lengths and pauses, the name what the texts are."""
        self._lengths = random.Random(seed)
        self._words = random.Random(name)
        system = text(self._words, self._lengths.randint(300, 500))
        self._messages = [{"role": "system", "content": system}]
        self.first_token_s: list[float] = []

    async def hold(self, client: httpx.AsyncClient, url: str) -> None:
        """Ask turn after turn."""
        for _ in range(TURNS):
            await asyncio.sleep(self._lengths.uniform(0.2, 3.0))
            question = text(self._words, self._lengths.randint(20, 200))
            self._messages.append({"role": "user", "content": question})
            answer = await self._ask(client, url)
            self._messages.append({"role": "assistant", "content": answer})

    async def _ask(self, client: httpx.AsyncClient, url: str) -> str:
        body = {"model": "m", "messages": self._messages, "max_tokens": 16, "stream": True}
        begun_s, first_s, answer = time.perf_counter(), 0.0, ""
        async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as reply:
            assert reply.status_code == 200, await reply.aread()
            async for line in reply.aiter_lines():
                piece = _piece(line)
                if piece and not first_s:
                    first_s = time.perf_counter() - begun_s
                answer += piece
        self.first_token_s.append(first_s or time.perf_counter() - begun_s)
        return answer


def _piece(line: str) -> str:
    """Return the text in a line of a stream."""
    if not line.startswith("data: {"):
        return ""
    told = json.loads(line.removeprefix("data: "))
    assert "choices" in told, line
    choices = told["choices"]
    return str(choices[0]["delta"].get("content") or "") if choices else ""


@contextlib.contextmanager
def llama_cpp(gguf: Path) -> Iterator[str]:
    """Run a node; yield its address."""
    with subprocess.Popen(
        [
            sys.executable, "-m", "forebay.nodes.embedded.llama_child", "--gguf", str(gguf),
            "--alias", "m", "--threads", "1",
            "--slots", str(SLOTS), "--context", str(CONTEXT_TOKENS),
        ],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdin is not None
        word, _, url = child.stdout.readline().partition(" ")
        assert word == "ready", "llama.cpp did not start"
        try:
            yield url.strip()
        finally:
            child.stdin.close()


def in_front(folder: Path, nodes: list[str]) -> dict[str, tuple[Program, str]]:
    """Return what is in front of the nodes, and where it listens."""
    ports = [free_port(), free_port()]
    words = [COMMAND, "serve", "--port", str(ports[0])]
    for url in nodes:
        words += ["--node", url]
    words += ["--set", f"jobs.database=sqlite:///{folder}/jobs.db"]
    servers = [
        f"    server n{number} {url.removeprefix('http://')} maxconn {SLOTS}"
        for number, url in enumerate(nodes)
    ]
    file = folder / "haproxy.cfg"
    file.write_text(HAPROXY.format(port=ports[1], servers="\n".join(servers)))
    return {
        "forebay": (Program("forebay", words, folder), f"http://127.0.0.1:{ports[0]}"),
        "haproxy": (
            Program("haproxy", [haproxy_binary(), "-db", "-f", str(file)], folder),
            f"http://127.0.0.1:{ports[1]}",
        ),
    }


async def measure(options: argparse.Namespace, nodes: list[str], folder: Path) -> dict[str, Any]:
    """Hold the conversations of all rounds; return the times of each side by turn."""
    sides = in_front(folder, nodes)
    taken: dict[str, list[list[float]]] = {name: [] for name in sides}
    try:
        for program, _ in sides.values():
            program.start()
        await sides["forebay"][0].says("Try it:")
        async with httpx.AsyncClient(timeout=LIMIT_S, trust_env=False) as client:
            for turn in range(options.rounds):
                order = sorted(sides, reverse=turn % 2 == 1)
                for name in order:
                    talks = [
                        Conversation(options.seed + 1000 * turn + number, f"{name} {turn} {number}")
                        for number in range(options.conversations)
                    ]
                    url = sides[name][1]
                    await asyncio.gather(*(talk.hold(client, url) for talk in talks))
                    taken[name] += [talk.first_token_s for talk in talks]
                    print(turn, name, summary(taken[name]), flush=True)
    finally:
        for program, _ in sides.values():
            await program.stop()
    return {
        name: {**summary(talks), "first_token_s": [[round(s, 4) for s in each] for each in talks]}
        for name, talks in taken.items()
    }


def summary(talks: list[list[float]]) -> dict[str, float]:
    """Return the times of the first turns, and of the later ones, in seconds."""
    later = sorted(s for talk in talks for s in talk[1:])
    return {
        "first_turn_median": round(median(talk[0] for talk in talks), 3),
        "later_turns_median": round(median(later), 3),
        "later_turns_mean": round(mean(later), 3),
        "later_turns_p95": round(later[int(0.95 * len(later))], 3),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--conversations", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        gguf = write_tiny_model(folder / "model.gguf", size=MODEL)
        nodes = [stack.enter_context(llama_cpp(gguf)) for _ in range(2)]
        result = asyncio.run(measure(options, nodes, folder))
    keys = ("later_turns_median", "later_turns_mean", "later_turns_p95")
    ratios = {key: round(result["haproxy"][key] / result["forebay"][key], 2) for key in keys}
    print("HAProxy to Forebay:", ratios)
    if options.out is not None:
        settings = {key: getattr(options, key) for key in ("rounds", "conversations", "seed")}
        options.out.write_text(json.dumps({**settings, "ratios": ratios, **result}) + "\n")


if __name__ == "__main__":
    main()
