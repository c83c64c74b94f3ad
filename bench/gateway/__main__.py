"""`python -m bench.gateway`: run every gateway, print the tables, keep the raw results."""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from bench.gateway import payloads, report
from bench.gateway.gateways import (
    BARE_RELAY,
    COMPILED_NAME,
    GATEWAYS,
    HAPROXY,
    HAPROXY_CORKED,
    Gateway,
)
from bench.gateway.parts import PARTS, Results
from bench.gateway.programs import LOAD_CORE
from bench.gateway.stage import Bench, compile_tools
from bench.gateway.variations import take_variations
from bench.output import RESULTS, console, keep
from harness.recordings import recordings

BENCH = Path(__file__).parent.parent
NEEDED = ("haproxy", "wrk", "gcc", "taskset")
STARTS = 5
PAYLOADS, VARIATIONS = "payloads", "variations"


def arguments() -> argparse.Namespace:
    names = [gateway.name for gateway in GATEWAYS]
    payload_names = [one.name for one in recordings()]
    parser = argparse.ArgumentParser(prog="python -m bench.gateway", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter and fewer rounds, one start")
    parser.add_argument("--only", nargs="+", choices=names, help="these, beside the references")
    parser.add_argument("--payload", nargs="+", choices=payload_names, help="these recordings")
    parser.add_argument(
        "--part", nargs="+", choices=[PAYLOADS, VARIATIONS, *PARTS], help="these measures"
    )
    parser.add_argument("--starts", type=int, help="starts of each gateway: 5, or 1 with --quick")
    parser.add_argument("--out", type=Path, default=RESULTS / "gateway.json")
    parser.add_argument("--venvs", type=Path, default=BENCH / ".venvs", help="where peers live")
    options = parser.parse_args()
    options.starts = options.starts or (1 if options.quick else STARTS)
    options.part = options.part or [PAYLOADS, *PARTS]
    return options


def chosen(only: list[str] | None) -> list[Gateway]:
    """Return HAProxy and the bare relay, which every ratio needs, and those asked for."""
    references = (HAPROXY, BARE_RELAY)
    return [one for one in GATEWAYS if one in references or not only or one.name in only]


def install_missing() -> list[str]:
    """Install what the system lacks, where we may; return what is still missing."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        packages = ["util-linux" if name == "taskset" else name for name in missing]
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        subprocess.run(["apt-get", "install", "-y", "-qq", *packages], check=False)
    return [name for name in NEEDED if shutil.which(name) is None]


def run(bench: Bench, options: argparse.Namespace) -> dict[str, Results]:
    """Take what is asked for; return the payloads, the variations and the other measures."""
    started_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started_s:5.0f} s  {text}", file=sys.stderr, flush=True)

    compile_tools(bench.folder)
    if any(one.name == COMPILED_NAME for one in bench.gateways):
        say("compiling Forebay's hot path")
        subprocess.run(
            [sys.executable, str(BENCH.parent / "tools" / "compile.py"), "--if-changed"], check=True
        )
    taken: dict[str, Results] = {PAYLOADS: {}, VARIATIONS: {}, "results": {}}
    if PAYLOADS in options.part:
        asked = [one for one in recordings() if one.name in (options.payload or [one.name])]
        starts = payloads.take_starts(bench, asked, options.starts, say)
        taken[PAYLOADS] = payloads.over_starts(starts)
    if VARIATIONS in options.part:
        taken[VARIATIONS] = payloads.over_starts(take_variations(bench, say))
    for part in options.part:
        if part in PARTS:
            PARTS[part](bench, taken["results"], say)
    return taken


def show(screen: Console, bench: Bench, taken: dict[str, Results]) -> None:
    """Print a table for each kind of measure that was taken, and a line for each of our builds."""
    names = ["direct", *(gateway.name for gateway in bench.gateways)]
    if taken[PAYLOADS]:
        screen.print(report.payload_table(taken[PAYLOADS], names, "Payloads"))
        expected = [one.name for one in recordings()]
        for build in (name for name in names if name.startswith("forebay")):
            screen.print(report.headline(taken[PAYLOADS], build, expected))
    if taken[VARIATIONS]:
        queueing = [gateway.name for gateway in bench.gateways if gateway.queues]
        screen.print(report.payload_table(taken[VARIATIONS], queueing, "Variations"))
    if taken["results"] or bench.refused:
        names += [HAPROXY_CORKED.name] if "streams_100" in taken["results"] else []
        screen.print(report.table(taken["results"], names, bench.refused))


def commit() -> str:
    """Return the commit of the sources, with a + where they differ from it."""
    command = ["git", "-C", str(BENCH), "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> None:
    options = arguments()
    missing = install_missing()
    if missing or (os.cpu_count() or 1) <= LOAD_CORE:
        sys.exit(f"bench.gateway needs two cores, and: {', '.join(missing) or 'nothing more'}")
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    os.sched_setaffinity(0, {LOAD_CORE})
    started_s = time.monotonic()
    haproxy = subprocess.run(["haproxy", "-v"], capture_output=True, text=True, check=True)
    with tempfile.TemporaryDirectory(prefix="bench-gateway-") as folder:
        bench = Bench(Path(folder), options.venvs.resolve(), options.quick, chosen(options.only))
        taken = run(bench, options)
    show(console(), bench, taken)
    found = {
        "haproxy": haproxy.stdout.splitlines()[0],
        "commit": commit(),
        "quick": options.quick,
        "seconds": round(time.monotonic() - started_s, 1),
        "commands": bench.commands,
        "left_out": bench.refused,
        **taken,
    }
    keep(options.out, found)


if __name__ == "__main__":
    main()
