"""Plain calls: how many a second in a closed loop, and what each waits at a steady 200 a second."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from bench.gateway import payload
from bench.gateway.programs import LOAD_CORE, pinned, run_load
from bench.gateway.stage import HERE, Bench, Target

CONNECTIONS = 32
NO_VARIABLES: Mapping[str, str] = {}
PER_SECOND = 200.0
RATE_CONNECTIONS = 16


def wrk(
    bench: Bench,
    target: Target,
    seconds: float,
    connections: int = CONNECTIONS,
    request: bytes = b"",
    variables: Mapping[str, str] = NO_VARIABLES,
) -> dict[str, float]:
    """Run wrk once; return requests a second, errors, and how busy the gateway's core was."""
    sent = request or payload.post(payload.chat_body())
    path = bench.request("wrk.http", sent)
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--timeout", "10s"]
    command += ["-s", str(HERE / "replay.lua"), f"http://127.0.0.1:{target.port}"]
    variables = {"BENCH_REQUEST": str(path), "PATH": "/usr/bin:/bin", **variables}
    before_s = target.program.cpu_s() if target.program else 0.0
    try:
        done = subprocess.run(
            pinned(LOAD_CORE, command),
            env=variables,
            capture_output=True,
            text=True,
            timeout=seconds + 20,
            check=True,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):  # nobody there, or stuck
        return {"per_second": 0.0, "errors": 1, "core_busy": 0.0, "per_cpu_s": 0.0, "p99_ms": 0.0}
    used_s = target.program.cpu_s() - before_s if target.program else 0.0
    result = json.loads(done.stdout.partition("RESULT ")[2])
    good = result["requests"] - result["status_errors"]
    return {
        "per_second": good / result["seconds"],
        "errors": result["status_errors"] + result["socket_errors"],
        "core_busy": used_s / result["seconds"],
        "per_cpu_s": good / used_s if used_s else 0.0,
        "p50_ms": result["p50_us"] / 1e3,
        "p99_ms": result["p99_us"] / 1e3,
    }


def steady_rate(bench: Bench, targets: list[Target]) -> dict[str, dict[str, object]]:
    """Open loop: latency from the moment a request was due, the median over rounds."""
    rounds, seconds = (1, 1.0) if bench.quick else (4, 2.0)
    taken: dict[str, list[dict[str, float]]] = {target.name: [] for target in targets}
    for _ in range(rounds):
        for target in targets:
            request = bench.request("chat.http", payload.post(payload.chat_body()))
            taken[target.name].append(_rate(bench.load, target, request, seconds))
    return {name: _latency(figures) for name, figures in taken.items()}


def _rate(load: Path, target: Target, request: Path, seconds: float) -> dict[str, float]:
    words = ("rate", target.port, request, PER_SECOND, seconds, RATE_CONNECTIONS)
    return run_load(load, *words, timeout_s=seconds + 20)


def _latency(figures: list[dict[str, float]]) -> dict[str, object]:
    good = [one for one in figures if "p50_us" in one]
    lost = sum(one["sent"] - one["done"] for one in good) if good else -1
    return {
        "p50_ms": median(one["p50_us"] for one in good) / 1e3 if good else None,
        "p99_ms": median(one["p99_us"] for one in good) / 1e3 if good else None,
        "unanswered": lost,
        "rounds": figures,
    }
