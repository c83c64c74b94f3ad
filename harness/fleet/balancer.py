"""HAProxy in front of a fleet, with the settings that an operator would give it."""

import csv
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from forebay.testing.raw_client import Reply
from harness.fleet.asking import answers
from harness.fleet.ports import free_port
from harness.fleet.program import Program, ProgramFailed

SERVER = re.compile(r"gateway-(\d+):7800")
BIND = re.compile(r"^(\s*bind )\S*:(7800|8404)$", re.MULTILINE)


def settings_for(text: str, ports: Mapping[str, int], gateways: Sequence[int]) -> str:
    """Return the shipped settings with the addresses of this machine in the place of theirs.

    `ports` says where to listen instead of each port that they name.
    """
    named = {int(number) for number in SERVER.findall(text)}
    if named != set(range(1, len(gateways) + 1)):
        text = _with_servers(text, len(gateways))
    text = SERVER.sub(lambda found: f"127.0.0.1:{gateways[int(found[1]) - 1]}", text)
    return BIND.sub(lambda found: f"{found[1]}127.0.0.1:{ports[found[2]]}", text)


def _with_servers(text: str, count: int) -> str:
    """Return the settings with as many servers as there are gateways."""
    lines = text.splitlines(keepends=True)
    first = next(line for line in lines if SERVER.search(line))
    kept = [line for line in lines if not SERVER.search(line) or line == first]
    every = "".join(first.replace("gateway-1", f"gateway-{n}") for n in range(1, count + 1))
    return "".join(every if line == first else line for line in kept)


class Balancer(Program):
    """HAProxy on a port of its own."""

    def __init__(self, folder: Path, text: str, port: int, gateways: Sequence[int]) -> None:
        self.port = port
        self.page_port = free_port()
        """Where it shows how it sees the gateways."""
        file = folder / "haproxy.cfg"
        ports = {"7800": port, "8404": self.page_port}
        file.write_text(settings_for(text, ports, gateways))
        super().__init__("haproxy", [haproxy_binary(), "-db", "-f", str(file)], folder)

    async def sees_all(self) -> None:
        """Wait until it holds every gateway to be well; raises ProgramFailed if it never does."""

        def well(reply: Reply) -> bool:
            rows = list(csv.DictReader(reply.body.decode().lstrip("# ").splitlines()))
            states = [row["status"] for row in rows if row["svname"].startswith("gateway-")]
            return bool(states) and all(state.startswith("UP") for state in states)

        await answers(self.page_port, "/;csv", self, well)


def haproxy_binary() -> str:
    """Return where HAProxy is; raises ProgramFailed where it is not installed."""
    found = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise ProgramFailed("HAProxy is not installed: install the package 'haproxy'")
    return found
