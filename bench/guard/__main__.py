"""`python -m bench.guard [--quick]`: what the guard adds; raw in bench/results/guard.json."""

from __future__ import annotations

import json
import platform
import socket
import statistics
import subprocess
import sys
from contextlib import contextmanager
from multiprocessing import cpu_count
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULTS = Path(__file__).parent.parent / "results" / "guard.json"
TARGET_MS = 0.2
WARM_UP = 500
ROUNDS, CALLS = 20, 1000
BODY = b'{"model":"m","messages":[{"role":"user","content":"%b"}]}' % (b"word " * 120)
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
)
REQUEST = HEAD % len(BODY) + BODY
GUARD = "from forebay.cli.main import main; main()"


@contextmanager
def backend() -> Iterator[int]:
    """Run the backend; yields its port."""
    words = [sys.executable, "-m", "bench.guard.backend"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield int(child.stdout.readline())
        finally:
            child.kill()


@contextmanager
def guard(port: int) -> Iterator[int]:
    """Run a guard in front of it; yields the guard's port."""
    words = [sys.executable, "-c", GUARD, "node", "--port", "0"]
    words += ["--backend", f"http://127.0.0.1:{port}"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        try:
            for line in child.stderr:
                if line.startswith("Forebay guards"):
                    yield int(line.split(" with ")[0].rpartition(":")[2])
                    return
            raise SystemExit("the guard did not start")
        finally:
            child.kill()


class Caller:
    """One connection that is kept; one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def round(self, calls: int) -> list[float]:
        """Return how long each of so many calls took, in seconds."""
        took = []
        for _ in range(calls):
            began = perf_counter()
            self._socket.sendall(REQUEST)
            self._read()
            took.append(perf_counter() - began)
        return took

    def _read(self) -> None:
        data = self._socket.recv(65_536)
        if not data.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"an answer went wrong: {data[:200]!r}")
        head, _, body = data.partition(b"\r\n\r\n")
        missing = int(head.rpartition(b"content-length: ")[2].split(b"\r")[0]) - len(body)
        while missing > 0:
            missing -= len(self._socket.recv(65_536))


def measured(rounds: int) -> dict[str, list[list[float]]]:
    """Return the times of all calls, direct and through the guard, turn and turn about."""
    with backend() as port, guard(port) as guarded:
        callers = {"direct": Caller(port), "guarded": Caller(guarded)}
        for caller in callers.values():
            caller.round(WARM_UP)
        times: dict[str, list[list[float]]] = {name: [] for name in callers}
        for _ in range(rounds):
            for name, caller in callers.items():
                times[name].append(caller.round(CALLS))
        return times


def figures(times: dict[str, list[list[float]]]) -> dict[str, dict[str, float]]:
    """Return medians and p99 in milliseconds, and what the guard adds: the median over rounds."""
    found: dict[str, dict[str, float]] = {}
    medians = {name: [statistics.median(one) for one in rounds] for name, rounds in times.items()}
    for name, rounds in times.items():
        every = sorted(took for one in rounds for took in one)
        found[name] = {
            "p50_ms": 1e3 * statistics.median(every),
            "p99_ms": 1e3 * every[int(len(every) * 0.99)],
            "best_round_p50_ms": 1e3 * min(medians[name]),
        }
    added = [b - a for a, b in zip(medians["direct"], medians["guarded"], strict=True)]
    found["added"] = {"p50_ms": 1e3 * statistics.median(added), "best_p50_ms": 1e3 * min(added)}
    return found


def show(console: Console, found: dict[str, dict[str, float]], calls: int) -> None:
    table = Table(title=f"{calls:,} chat calls each, one connection, loopback",
                  title_justify="left")  # fmt: skip
    for heading in ("way", "p50", "p99"):
        table.add_column(heading, justify="left" if heading == "way" else "right")
    for name in ("direct", "guarded"):
        one = found[name]
        table.add_row(name, f"{one['p50_ms']:.3f} ms", f"{one['p99_ms']:.3f} ms")
    added = found["added"]["p50_ms"]
    table.add_row("the guard adds", f"{added:.3f} ms", f"target: under {TARGET_MS} ms")
    console.print(table)


def main() -> None:
    console = Console()
    rounds = 5 if "--quick" in sys.argv else ROUNDS
    times = measured(rounds)
    found = figures(times)
    show(console, found, rounds * CALLS)
    machine = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": cpu_count(),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"machine": machine, "rounds": rounds, **found}, indent=1) + "\n")
    console.print("raw results: bench/results/guard.json")


if __name__ == "__main__":
    main()
