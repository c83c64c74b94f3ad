"""A fleet to play with, on this machine and without containers.

python -m harness.fleet --haproxy-if-there deploy/haproxy.cfg
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from pathlib import Path

from harness.fleet.balancer import haproxy_binary
from harness.fleet.fleet import Fleet
from harness.fleet.plan import FleetPlan, NodePlan
from harness.fleet.ports import is_taken
from harness.fleet.program import Program, ProgramFailed

FIRST_PORT = 7801


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def planned(chosen: argparse.Namespace) -> FleetPlan:
    """Return the plan that the command line asks for."""
    return FleetPlan(
        gateways=chosen.gateways,
        nodes=tuple(NodePlan(f"gpu{number + 1}") for number in range(chosen.nodes)),
        lease_s=chosen.lease_seconds,
        guards=not chosen.no_guards,
        postgres=not chosen.no_postgres,
        haproxy=_haproxy(chosen.haproxy_if_there),
        first_port=chosen.port,
    )


def _haproxy(file: Path | None) -> str:
    """Return HAProxy's settings; "" when none are named, or it is not installed."""
    if file is None:
        return ""
    try:
        haproxy_binary()
    except ProgramFailed as error:
        say(f"{error}; going on without")
        return ""
    return file.read_text()


def refuse_taken_ports(plan: FleetPlan) -> None:
    """Raise ProgramFailed where another program has a port: before anything is started."""
    first = plan.first_port - 1 if plan.haproxy else plan.first_port
    for port in range(first, plan.first_port + plan.gateways) if plan.first_port else ():
        if is_taken(port):
            raise ProgramFailed(
                f"port {port} is in use: stop what listens there (`make run`?), or choose others: "
                f"make fleet ARGS='--port {plan.first_port + 100}'"
            )


async def play(plan: FleetPlan, folder: Path) -> None:
    """Run a fleet until told to stop (Ctrl-C, SIGTERM)."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    refuse_taken_ports(plan)
    say(f"starting; logs are in {folder}")
    async with Fleet(plan, folder) as fleet:
        say("\n".join(shown(fleet)))
        await stopping.wait()
        say("stopping")


def shown(fleet: Fleet) -> list[str]:
    """Return where everything is, and what to try."""
    rows = []
    if fleet.balancer is not None:
        page = f"its page: http://127.0.0.1:{fleet.balancer.page_port}/"
        rows.append(_row(fleet.balancer, fleet.url, page))
    rows += [_row(gateway, gateway.url) for gateway in fleet.gateways]
    urls = {node.name: node.url for node in fleet.plan.nodes}
    rows += [_row(node, urls[node.name]) for node in fleet.nodes]
    rows += [_row(guard, f"beside {guard.name.removeprefix('guard-')}") for guard in fleet.guards]
    if fleet.store is not None:
        rows.append(_row(fleet.store, fleet.store.url))
    if fleet.database is not None:
        rows.append(f"{'postgres':<14}{'':>9}  {fleet.database.url}")
    one = fleet.gateways[0]
    body = '{"model": "small", "messages": [{"role": "user", "content": "Why is the sky blue?"}]}'
    return [
        f"{'what':<14}{'process':>9}  where",
        *rows,
        "",
        "Try it:",
        f"  curl {fleet.url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'",
        f"  .venv/bin/forebay bench {fleet.url} --model small --rate 5 --duration 1m",
        f"  .venv/bin/forebay top --url {one.url}",
        f"  kill -9 {one.pid}         one gateway dies, the others go on",
        f"  kill -STOP {one.pid}      it freezes; kill -CONT {one.pid} thaws it",
        "Ctrl-C stops everything.",
    ]


def _row(program: Program, where: str, more: str = "") -> str:
    return f"{program.name:<14}{program.pid:>9}  {where}{f'   {more}' if more else ''}"


def options() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(prog="python -m harness.fleet")
    add = parser.add_argument
    add("--gateways", type=int, default=2, help="how many gateways share the queue")
    add("--nodes", type=int, default=3, help="how many simulated nodes, with two slots each")
    add("--port", type=int, default=FIRST_PORT,
        help="the first gateway's; HAProxy takes the one before it; 0 takes free ones")  # fmt: skip
    add("--lease-seconds", type=float, default=5.0, help="coordination.lease_seconds")
    add("--haproxy-if-there", type=Path, metavar="FILE",
        help="put HAProxy in front, with these settings: deploy/haproxy.cfg")  # fmt: skip
    add("--no-guards", action="store_true", help="no guard beside the nodes")
    add("--no-postgres", action="store_true", help="jobs and sessions in a file per gateway")
    add("--folder", type=Path, help="where logs and files go; else a folder that vanishes")
    return parser


def main() -> int:
    """Read the command line and run."""
    chosen = options().parse_args()
    try:
        if chosen.folder is not None:
            asyncio.run(play(planned(chosen), chosen.folder.resolve()))
            return 0
        with tempfile.TemporaryDirectory(prefix="forebay-fleet-") as folder:
            asyncio.run(play(planned(chosen), Path(folder)))
    except (ProgramFailed, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
