"""Through a real gateway: how fast jobs are taken in, and what a batch costs whoever chats."""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING

import msgspec
import uvloop

from bench.gateway import unary
from bench.gateway.gateways import Gateway, forebay
from bench.gateway.payload import get
from bench.gateway.programs import ask
from bench.gateway.stage import Bench, Target, compile_tools, running, stream_node
from forebay.load.plan import LoadPlan
from forebay.load.run import RunProgress, load
from harness.recordings import KEY, MODEL, USER

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOTS = 2
SERVICE_S = 0.1
"""How long the node takes for one job: the bound on what a chat may lose to them."""
QUEUED_MAX = {"FOREBAY_JOBS__MAX_QUEUE_DEPTH": "100000"}
USERS = {"BENCH_USERS": "10000"}
"""In the text of each job: one that is queued already would not be taken a second time."""
CHATS = LoadPlan(url="", model=MODEL, rate=6.0, duration_s=20.0, stream=False, max_tokens=1)


class Silent:
    """Watches a run and shows nothing."""

    def update(self, live: RunProgress) -> None: ...


@contextmanager
def gateway() -> Iterator[tuple[Bench, Target]]:
    """Run a gateway in front of a node that takes a while."""
    with tempfile.TemporaryDirectory(prefix="bench-jobs-") as folder:
        started = Gateway("forebay", forebay, queues=True, variables=QUEUED_MAX)
        bench = Bench(Path(folder), Path(folder), quick=False, gateways=[started])
        compile_tools(bench.folder)
        with (
            stream_node(bench, hold_s=SERVICE_S) as node,
            running(bench, bench.gateways, node, SLOTS) as targets,
        ):
            if bench.refused:
                raise SystemExit(f"the gateway {bench.refused['forebay']}")
            yield bench, targets[0]


def submit(bench: Bench, target: Target, seconds: float, clients: int) -> dict[str, float]:
    """Submit one by one from so many clients."""
    messages = [{"role": "user", "content": f"{USER} of {clients} clients"}]
    params = {"model": MODEL, "messages": messages, "max_tokens": 1}
    body = json.dumps({"type": "chat", "params": params}).encode()
    head = get("/jobs").replace(b"GET", b"POST", 1).removesuffix(b"\r\n")
    lines = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    taken = unary.wrk(bench, target, seconds, clients, head + lines + body, USERS)
    return {"jobs_per_s": taken["per_second"], "clients": clients, "errors": taken["errors"]}


def chat_latencies(target: Target) -> list[float]:
    """Chat at random moments, the same each time; return what each took, in seconds."""
    plan = msgspec.structs.replace(CHATS, url=f"http://127.0.0.1:{target.port}")
    measured = uvloop.run(load(plan, plan.schedule(), KEY, Silent()))
    return [one.total_s for one in measured.samples if one.is_ok and one.total_s is not None]


def beside_a_batch() -> dict[str, float]:
    """Compare chat alone with chat beside more jobs than the node can do, in one run."""
    with gateway() as (bench, target):
        alone = chat_latencies(target)
        submit(bench, target, 4.0, 4)
        before = _completed(target)
        beside = chat_latencies(target)
        done = _completed(target) - before
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


def _completed(target: Target) -> int:
    lines = ask(target.port, get("/metrics"))[1].decode().splitlines()
    return sum(
        int(float(line.rpartition(" ")[2]))
        for line in lines
        if line.startswith('forebay_jobs{status="completed"')
    )


def over_http() -> dict[str, dict[str, float]]:
    with gateway() as (bench, target):
        return {
            "one client": submit(bench, target, 2.0, 1),
            "eight clients": submit(bench, target, 2.0, 8),
        }
