"""Streams: chunks that the gateway passes on per CPU second, and its memory with many open."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import IO

from bench.gateway import payload
from bench.gateway.programs import LOAD_CORE, ask, pinned
from bench.gateway.stage import Bench, Target, node_stats

OPEN_STREAMS = 1000
WAITING = 10_000
WARM_S = 0.5
SPREAD = 500  # phases of a beat: as many as there are streams, so that each writes by itself
KEPT_UP_MIN = 0.5  # of 100 streams: who passes on less is not asked for more
SETTLE_S = 10.0  # the longest that a gateway may keep streams open that nobody reads


def await_idle(node: Target) -> None:
    """Wait until the node sends nothing more: not every gateway hangs up when its client does."""
    until = time.monotonic() + SETTLE_S
    while node_stats(node)["active"] and time.monotonic() < until:
        time.sleep(0.1)


def able(targets: list[Target], taken: dict[str, dict[str, object]]) -> list[Target]:
    """Return those that kept up with what was taken."""
    kept_up = {name for name, one in taken.items() if float(str(one["delivered"])) > KEPT_UP_MIN}
    return [target for target in targets if target.name in kept_up]


def left_out(names: list[str], reason: str) -> dict[str, dict[str, object]]:
    """Return results that say why these have none."""
    return {name: {"left_out": reason} for name in names}


@contextmanager
def _load(bench: Bench, *words: object) -> Iterator[subprocess.Popen[str]]:
    command = pinned(LOAD_CORE, [str(bench.load), *map(str, words)])
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def _line(output: IO[str] | None) -> str:
    return output.readline().strip() if output else ""


def chunks_per_cpu(
    bench: Bench, node: Target, targets: list[Target], count: int
) -> dict[str, dict[str, object]]:
    """Run `count` streams through each in turn; chunks passed on over CPU seconds used."""
    taken: dict[str, list[dict[str, float]]] = {target.name: [] for target in targets}
    for _ in range(1 if bench.quick else 2):
        for target in targets:
            sent = payload.post(payload.chat_body(stream=True))
            request = bench.request("stream.http", sent)
            taken[target.name].append(stream_round(bench, target, count, request, 50))
            await_idle(node)
    return {name: _stream_summary(figures) for name, figures in taken.items()}


def stream_round(
    bench: Bench, target: Target, count: int, request: Path, per_second: int
) -> dict[str, float]:
    """Read `count` streams for a while; tokens delivered, how late, and the CPU used."""
    words = ("streams", target.port, request, count, WARM_S, bench.seconds(2.5, 0.8))
    with _load(bench, *words) as child:
        if _line(child.stdout) != "begin":
            return {"failed": 1}
        before_s = target.program.cpu_s() if target.program else 0.0
        figures: dict[str, float] = json.loads(_line(child.stdout).removeprefix("end ") or "{}")
        used_s = target.program.cpu_s() - before_s if target.program else 0.0
    events = figures.get("events", 0.0)
    return {
        **figures,
        "cpu_s": used_s,
        "core_busy": used_s / figures.get("seconds", 1.0),
        "per_cpu_s": events / used_s if used_s else 0.0,
        "delivered": events / (count * per_second * figures.get("seconds", 1.0)),
    }


def _stream_summary(figures: list[dict[str, float]]) -> dict[str, object]:
    good = [one for one in figures if "per_cpu_s" in one]
    return {
        "value": median(one["per_cpu_s"] for one in good) if good else None,
        "left_out": "-" if good else "no stream opened",
        "delivered": median(one["delivered"] for one in good) if good else 0.0,
        "per_read": median(one["events"] / max(one["reads"], 1) for one in good) if good else 0.0,
        "rounds": figures,
    }


def memory_with_streams(
    bench: Bench, node: Target, targets: list[Target]
) -> dict[str, dict[str, object]]:
    """Open a thousand streams of one event a second; the resident memory, and what it was idle."""
    body = payload.chat_body(stream=True, slow=True)
    results: dict[str, dict[str, object]] = {}
    for target in targets:
        request = bench.request("slow.http", payload.post(body))
        if target.program is None:
            continue
        idle_mib = target.program.rss_mib()
        with _load(bench, "hold", target.port, request, OPEN_STREAMS) as child:
            _line(child.stdout)
            time.sleep(bench.seconds(1.5, 1.0))
            open_streams = node_stats(node)["active"]
            mib = target.program.rss_mib()
        await_idle(node)  # the streams that it still holds would be counted for the next
        results[target.name] = {"value": mib, "idle_mib": idle_mib, "open": open_streams}
    return results


def memory_with_waiters(bench: Bench, targets: list[Target]) -> dict[str, dict[str, object]]:
    """Let ten thousand requests wait for one slot; the resident memory, and what it was idle."""
    request = bench.request("chat.http", payload.post(payload.chat_body()))
    results: dict[str, dict[str, object]] = {}
    for target in targets:
        if target.program is None:
            continue
        idle_mib = target.program.rss_mib()
        with _load(bench, "hold", target.port, request, WAITING) as child:
            _line(child.stdout)
            time.sleep(1.0)
            waiting = _waiting(target)
            mib = target.program.rss_mib()
            if child.stdin:
                child.stdin.close()
            figures = json.loads(_line(child.stdout).removeprefix("end ") or "{}")
        results[target.name] = {"value": mib, "idle_mib": idle_mib, "waiting": waiting, **figures}
    return results


def _waiting(target: Target) -> int | None:
    """Return how many the gateway itself says are waiting, where it can say so."""
    if not target.name.startswith("forebay"):
        return None
    try:
        status, answer = ask(target.port, payload.get("/v1/queue"))
        return int(json.loads(answer)["waiting"]) if status == 200 else None
    except (OSError, ValueError, KeyError):
        return None
