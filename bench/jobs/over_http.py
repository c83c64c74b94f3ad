"""Through a real gateway: how fast jobs are taken in, and what a batch costs whoever chats."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING

from bench.gateway.programs import GATEWAY_CORE, LOAD_CORE, Program, free_port, wait_for_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOTS = 2
SERVICE_S = 0.1
"""How long the simulated node takes for one job: the bound on what a chat may lose to them."""


@contextlib.contextmanager
def gateway() -> Iterator[int]:
    """Run a gateway in front of a simulated node; its port."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        node_port, port = free_port(), free_port()
        command = str(Path(sys.executable).parent / "forebay")
        node = [command, "sim-node", "--port", str(node_port), "--model", "m", "--slots",
                str(SLOTS), "--ttft-ms", str(SERVICE_S * 1000),
                "--tokens-per-second", "0"]  # fmt: skip
        serve = [command, "serve", "--port", str(port), "--node", f"http://127.0.0.1:{node_port}",
                 "--set", f"jobs.database=sqlite:///{folder}/jobs.db",
                 "--set", "jobs.max_queue_depth=100000"]  # fmt: skip
        programs = [Program(LOAD_CORE, node, folder / "node.log")]
        try:
            wait_for_answer(programs[0], node_port, get("/health"), 20.0)
            programs.append(Program(GATEWAY_CORE, serve, folder / "gateway.log"))
            wait_for_answer(programs[1], port, get("/ready"), 20.0)
            yield port
        finally:
            for program in reversed(programs):
                program.stop()


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()


def body(number: int, what: str) -> bytes:
    params = {"model": "m", "messages": [{"role": "user", "content": f"{what} {number}"}],
              "max_tokens": 1}  # fmt: skip
    given = {"type": "chat", "params": params} if what == "job" else params
    return json.dumps(given).encode()


def post(connection: http.client.HTTPConnection, path: str, content: bytes) -> int:
    connection.request("POST", path, content, {"content-type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def submit(port: int, count: int, at_once: int) -> dict[str, float]:
    """Submit one by one from so many clients."""
    left = iter(range(count))
    lock = threading.Lock()
    wrong: list[int] = []

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        while True:
            with lock:
                number = next(left, None)
            if number is None:
                return
            status = post(connection, "/jobs", body(at_once * 1_000_000 + number, "job"))
            if status != 202:
                wrong.append(status)

    threads = [threading.Thread(target=client) for _ in range(at_once)]
    began_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s = time.perf_counter() - began_s
    return {"jobs_per_s": count / took_s, "clients": at_once, "errors": len(wrong)}


def chat_latencies(port: int, count: int, per_s: float, seed: int) -> list[float]:
    """Chat at random moments; return what each took, in seconds."""
    chance = random.Random(seed)
    taken: list[float] = []
    threads = []

    def one(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        began_s = time.perf_counter()
        if post(connection, "/v1/chat/completions", body(number, "chat")) == 200:
            taken.append(time.perf_counter() - began_s)

    for number in range(count):
        time.sleep(chance.expovariate(per_s))
        threads.append(threading.Thread(target=one, args=(number,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return taken


def beside_a_batch() -> dict[str, float]:
    """Compare chat alone with chat beside more jobs than the node can do, in one run."""
    with gateway() as port:
        alone = chat_latencies(port, 120, 6.0, 1)
        submit(port, 600, 4)
        beside = chat_latencies(port, 120, 6.0, 1)
        done = _completed(port)
    alone_p95, beside_p95 = quantiles(alone, n=20)[-1], quantiles(beside, n=20)[-1]
    return {
        "alone_p50_s": quantiles(alone, n=2)[0],
        "alone_p95_s": alone_p95,
        "beside_p50_s": quantiles(beside, n=2)[0],
        "beside_p95_s": beside_p95,
        "lost_s": beside_p95 - alone_p95,
        "service_s": SERVICE_S,
        "jobs_done_meanwhile": done,
        "chats": len(alone) + len(beside),
    }


def _completed(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    for line in text.splitlines():
        if line.startswith('forebay_jobs{status="completed"'):
            return int(float(line.rpartition(" ")[2]))
    return 0


def over_http() -> dict[str, dict[str, float]]:
    with gateway() as port:
        return {"one client": submit(port, 600, 1), "eight clients": submit(port, 1600, 8)}
