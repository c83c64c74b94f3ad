"""How much less is computed, and how much sooner later turns begin, where their prompt is cached.

    python -m bench.prefix [--rounds 3] [--conversations 8] [--seed 1] [--out results.json]

Two real llama.cpp nodes with two slots each and a random model of 3 million parameters. In front
of both, in turn, Forebay and HAProxy (`balance leastconn`, `maxconn` as many as slots: the node
with the fewest requests). In a round, so many conversations of six turns are held at the same time,
with the lengths of a trace (`load.py`). Texts are new in every round, so no prompt is known from
before; both sides get conversations of the same lengths.

Printed for each turn: the share of prompt tokens that was computed, as the engine counts them,
the least share possible (what is new in the turn), and the median time to the first token, taken
at the client with the wait. On a machine that is slow or busy with other things, `--pace 4`
makes the pauses four times as long, so that the nodes are not busier than they should be; the
tokens are then worth reading, the times are not.

The nodes' cache beside their slots (`--cache-mib`) is scaled like the prompts: llama.cpp's 8 GiB
are 65,536 tokens of a model with 8 billion parameters (128 KiB a token), so here 4,096 tokens of
4 KiB. With `--cache-mib 8192` the nodes forget nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from bench.prefix.load import WORDS, Conversation
from bench.prefix.report import figures, print_table, ratios
from harness.fleet.balancer import haproxy_binary
from harness.fleet.ports import free_port
from harness.fleet.program import Program
from harness.preloaded import COMMAND
from harness.tiny_model import Size, write_tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.prefix.load import Turn

SLOTS = 2
CONTEXT_TOKENS = 4096
CACHE_MIB = 16
LIMIT_S = 120.0
MODEL = Size(layers=4, width=256, hidden=704, heads=4)

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
    http-response set-header x-node %s
{servers}
"""


@contextlib.contextmanager
def llama_cpp(gguf: Path, cache_mib: int, slots: int = SLOTS, threads: int = 1) -> Iterator[str]:
    """Run a node; yield its address."""
    sizes = [str(slots), str(CONTEXT_TOKENS), str(cache_mib), str(threads)]
    with subprocess.Popen(
        [sys.executable, "-m", "bench.prefix.node", str(gguf), *sizes],
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


def in_front(folder: Path, nodes: list[str], slots: int = SLOTS) -> dict[str, tuple[Program, str]]:
    """Return what is in front of the nodes, and where it listens."""
    port = free_port()
    servers = [
        f"    server n{number} {url.removeprefix('http://')} maxconn {slots}"
        for number, url in enumerate(nodes)
    ]
    file = folder / "haproxy.cfg"
    file.write_text(HAPROXY.format(port=port, servers="\n".join(servers)))
    return {
        "forebay": served(folder, [word for url in nodes for word in ("--node", url)]),
        "haproxy": (
            Program("haproxy", [haproxy_binary(), "-db", "-f", str(file)], folder),
            f"http://127.0.0.1:{port}",
        ),
    }


def served(folder: Path, words: list[str]) -> tuple[Program, str]:
    """Return a gateway that is started with these words, and where it listens."""
    port = free_port()
    words = [COMMAND, "serve", "--port", str(port), *words]
    words += ["--set", f"jobs.database=sqlite:///{folder}/jobs.db"]
    return Program("forebay", words, folder), f"http://127.0.0.1:{port}"


async def measure(
    options: argparse.Namespace, nodes: list[str], folder: Path
) -> dict[str, list[list[Turn]]]:
    """Hold the conversations of all rounds; return the turns of each, by side."""
    sides = in_front(folder, nodes)
    taken: dict[str, list[list[Turn]]] = {name: [] for name in sides}
    try:
        for program, _ in sides.values():
            program.start()
        await sides["forebay"][0].says("Try it:")
        async with httpx.AsyncClient(timeout=LIMIT_S, trust_env=False) as client:
            for number in range(options.rounds):
                for name in sorted(sides, reverse=number % 2 == 1):
                    taken[name] += await hold_all(options, number, name, client, sides[name][1])
                    print(number, name, figures(taken[name])["later"], flush=True)
    finally:
        for program, _ in sides.values():
            await program.stop()
    return taken


async def hold_all(
    options: argparse.Namespace, number: int, name: str, client: httpx.AsyncClient, url: str
) -> list[list[Turn]]:
    """Hold the conversations of one round through one side."""
    talks = [
        Conversation(options.seed + 1000 * number + which, f"{name} {number} {which}", options.pace)
        for which in range(options.conversations)
    ]
    await asyncio.gather(*(talk.hold(client, url) for talk in talks))
    return [talk.turns for talk in talks]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--conversations", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cache-mib", type=int, default=CACHE_MIB)
    parser.add_argument("--pace", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        gguf = write_tiny_model(folder / "model.gguf", size=MODEL, words=WORDS)
        nodes = [stack.enter_context(llama_cpp(gguf, options.cache_mib)) for _ in range(2)]
        taken = asyncio.run(measure(options, nodes, folder))
    found = {name: figures(talks) for name, talks in taken.items()}
    print_table(found)
    if options.out is not None:
        result: dict[str, Any] = {
            key: getattr(options, key)
            for key in ("rounds", "conversations", "seed", "cache_mib", "pace")
        }
        result |= {"ratios": ratios(found), **found, "turns": taken}
        options.out.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
