"""`python -m bench.gateway`: run every gateway, print one table, keep the raw results."""

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from bench.gateway import handoff, report, stall, streams, unary
from bench.gateway.gateways import GATEWAYS, HAPROXY, HAPROXY_CORKED, Gateway
from bench.gateway.programs import LOAD_CORE
from bench.gateway.stage import Bench, compile_tools, running, stream_node, unary_node

BENCH = Path(__file__).parent.parent
WIDTH_MIN = 160
NEEDED = ("haproxy", "wrk", "gcc", "taskset")

Results = dict[str, dict[str, dict[str, object]]]
Say = Callable[[str], None]


def arguments() -> argparse.Namespace:
    names = [gateway.name for gateway in GATEWAYS]
    parser = argparse.ArgumentParser(prog="python -m bench.gateway", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter and fewer rounds")
    parser.add_argument("--only", nargs="+", choices=names, help="these, beside HAProxy")
    parser.add_argument("--out", type=Path, default=BENCH / "results" / "gateway.json")
    parser.add_argument("--venvs", type=Path, default=BENCH / ".venvs", help="where peers live")
    return parser.parse_args()


def chosen(only: list[str] | None) -> list[Gateway]:
    """Return HAProxy, which every ratio needs, and those asked for."""
    return [one for one in GATEWAYS if one is HAPROXY or not only or one.name in only]


def plain_calls(bench: Bench, results: Results, say: Say) -> None:
    say("plain calls: starting gateways (and installing those not there yet)")
    with unary_node(bench) as node, running(bench, bench.gateways, node, slots=64) as targets:
        say("plain calls in a closed loop")
        results["calls"] = unary.closed_loop(bench, [node, *targets])
        say("plain calls at 200 a second")
        results["latency"] = unary.steady_rate(bench, [node, *targets])


def queued_calls(bench: Bench, results: Results, say: Say) -> None:
    queueing = [one for one in bench.gateways if one.queues]
    say("calls that queue: 16 slots for 32 clients")
    with unary_node(bench) as node, running(bench, queueing, node, slots=16) as targets:
        results["queued_calls"] = unary.closed_loop(bench, targets)
    say("a freed slot")
    results["freed_slot"] = handoff.freed_slot(bench, queueing)
    say("10,000 waiting")
    with (
        stream_node(bench, hold_s=0.05) as node,
        running(bench, queueing, node, slots=1) as targets,
    ):
        results["waiting"] = streams.memory_with_waiters(bench, targets)


def streamed_calls(bench: Bench, results: Results, say: Say) -> None:
    chunks = int(50 * bench.seconds(7.0, 3.0))
    slow = [one.name for one in bench.gateways if one.slow and bench.quick]
    gateways = [HAPROXY_CORKED, *(one for one in bench.gateways if one.name not in slow)]
    say("streams: starting gateways")
    with (
        stream_node(bench, chunks=chunks) as node,
        running(bench, gateways, node, slots=2000) as targets,
    ):
        everyone = [node, *targets]
        say("100 streams of 50 chunks a second")
        taken = streams.chunks_per_cpu(bench, node, everyone, 100)
        able = streams.able(everyone, taken)
        absent = streams.left_out(slow, "not in --quick")
        unable = absent | streams.left_out(
            [one.name for one in targets if one not in able], "100 are too many"
        )
        results["streams_100"] = absent | taken
        say("1,000 open streams")
        results["open_streams"] = unable | streams.memory_with_streams(bench, node, able)
        say("500 streams of 50 chunks a second")
        results["streams_500"] = unable | streams.chunks_per_cpu(bench, node, able, 500)
        say("a 30 MiB body")
        results["large_body"] = absent | stall.large_body(bench, everyone)


def machine() -> dict[str, object]:
    version = subprocess.run(["haproxy", "-v"], capture_output=True, text=True, check=True)
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "haproxy": version.stdout.splitlines()[0],
    }


def install_missing() -> list[str]:
    """Install what the system lacks, where we may; return what is still missing."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        packages = ["util-linux" if name == "taskset" else name for name in missing]
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        subprocess.run(["apt-get", "install", "-y", "-qq", *packages], check=False)
    return [name for name in NEEDED if shutil.which(name) is None]


def main() -> None:
    options = arguments()
    missing = install_missing()
    if missing or (os.cpu_count() or 1) <= LOAD_CORE:
        sys.exit(f"bench.gateway needs two cores, and: {', '.join(missing) or 'nothing more'}")
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    os.sched_setaffinity(0, {LOAD_CORE})
    console = Console()
    if console.width < WIDTH_MIN:
        console = Console(width=WIDTH_MIN)
    started_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started_s:5.0f} s  {text}", file=sys.stderr, flush=True)

    results: Results = {}
    with tempfile.TemporaryDirectory(prefix="bench-gateway-") as folder:
        bench = Bench(Path(folder), options.venvs.resolve(), options.quick, chosen(options.only))
        compile_tools(bench.folder)
        say("compiling Forebay's hot path")
        subprocess.run([sys.executable, str(BENCH.parent / "tools" / "compile.py")], check=True)
        for part in (plain_calls, queued_calls, streamed_calls):
            part(bench, results, say)
    names = ["direct", *(gateway.name for gateway in bench.gateways), HAPROXY_CORKED.name]
    console.print(report.table(results, names, bench.refused))
    raw = {
        "machine": machine(),
        "quick": options.quick,
        "seconds": round(time.monotonic() - started_s, 1),
        "commands": bench.commands,
        "left_out": bench.refused,
        "results": results,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(raw, indent=1) + "\n")
    console.print(f"raw results: {options.out.name}")


main()
