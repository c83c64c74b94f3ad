"""A 30 MiB body: how long anyone else on the gateway waits while it arrives."""

import contextlib
import threading
import time
from pathlib import Path
from statistics import median

from bench.gateway import payload
from bench.gateway.programs import ask, run_load
from bench.gateway.stage import Bench, Target

BODY_BYTES = 30 * 2**20
PROBES_PER_SECOND = 500.0  # one every 2 ms
QUIET_S = 0.2  # after the probes have begun
POST_S_MAX = 15.0


def large_body(bench: Bench, targets: list[Target]) -> dict[str, dict[str, object]]:
    """Probe every 2 ms on other connections; the worst answer without and with the body.

    Other work on the machine only ever adds, so the round with the best worst answer is shown.
    """
    body = payload.post(payload.chat_body(padding_bytes=BODY_BYTES))
    taken: dict[str, list[dict[str, float]]] = {target.name: [] for target in targets}
    for _ in range(1 if bench.quick else 3):
        for target in targets:
            taken[target.name].append(_round(bench, target, body))
    return {name: _summary(rounds) for name, rounds in taken.items()}


def _summary(rounds: list[dict[str, float]]) -> dict[str, object]:
    good = [one for one in rounds if "worst_ms" in one]
    if not good:
        return {"left_out": "no answer", "rounds": rounds}
    return {
        "value": min(one["worst_ms"] for one in good),
        "median_ms": median(one["worst_ms"] for one in good),
        "baseline_ms": min(one["quiet_ms"] for one in good),
        "status": max(one["status"] for one in good),
        "rounds": rounds,
    }


def _round(bench: Bench, target: Target, body: bytes) -> dict[str, float]:
    request = bench.request("probe.http", payload.get(target.probe_path))
    quiet = _probe(bench, target, request, bench.seconds(1.0, 0.4))
    post: dict[str, float] = {}
    poster = threading.Thread(target=_post, args=(target.port, body, post))
    poster.start()
    loaded = _probe(bench, target, request, bench.seconds(1.0, 0.7))
    poster.join()
    if "max_us" not in quiet or "max_us" not in loaded:
        return post
    return {"worst_ms": loaded["max_us"] / 1e3, "quiet_ms": quiet["max_us"] / 1e3, **post}


def _probe(bench: Bench, target: Target, request: Path, seconds: float) -> dict[str, float]:
    words = ("rate", target.port, request, PROBES_PER_SECOND, seconds, 4)
    return run_load(bench.load, *words, timeout_s=30)


def _post(port: int, body: bytes, post: dict[str, float]) -> None:
    time.sleep(QUIET_S)
    started_s = time.monotonic()
    post["status"] = 0  # no answer: refused, reset, or too slow
    with contextlib.suppress(OSError):
        post["status"] = ask(port, body, POST_S_MAX)[0]
    post["seconds"] = time.monotonic() - started_s
