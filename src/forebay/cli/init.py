"""`forebay init`: write a settings file from what is found on this machine."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from forebay.cli.invocation import as_called
from forebay.cli.output.console import fail, tell, tell_json

HOST, USUAL_PORT, PORTS_TRIED = "127.0.0.1", 7800, 20
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class FoundHere(NamedTuple):
    """What a settings file for this machine says other than the defaults."""

    values: dict[str, object]
    """By dotted key."""
    nodes: list[dict[str, object]]

    def lines(self) -> list[str]:
        """Say what was found, one sentence a line."""
        said = [f"Found {node['kind']} at {node['url']}: added as a node." for node in self.nodes]
        if port := self.values.get("server.port"):
            said.append(f"Port {USUAL_PORT} is in use here, so the gateway will listen on {port}.")
        return said or ["No model server answers here: the gateway will look again when it starts."]


def init(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="File to write.")] = Path(
        "forebay.toml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a settings file with the model servers found on this machine.

    Model servers that answer on this machine become nodes; every other key is commented out with
    its default, and explained.
    """
    if path.exists() and not force:
        look = as_called(f"config check {path}")
        fail(f"{path} exists already. Look at it: {look}, or use --force.")
    found = look_around()
    from forebay.settings.example import example_toml  # not for a list of options

    text = example_toml(found.values, found.nodes, f"forebay init: {' '.join(found.lines())}")
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        fail(f"{path} cannot be written: {error.strerror}. Name another path.")
    if as_json:
        tell_json({"path": str(path), "values": found.values, "nodes": found.nodes})
        return
    for line in found.lines():
        tell(line)
    tell(f"Wrote {path}. Change what you need, then run: {as_called(f'config check {path}')}")


def look_around() -> FoundHere:
    """Ask the usual ports what is there."""
    from forebay.nodes import discovery

    found = asyncio.run(discovery.discover(discovery.http_fetch, discovery.LOOPBACK_URLS))
    nodes: list[dict[str, object]] = [
        {"name": node.name, "url": node.url, "kind": node.kind} for node in found
    ]
    from forebay.cli.doctor.machine import gateway_at

    port = _free_port()
    if port != USUAL_PORT and gateway_at(HOST, USUAL_PORT):
        port = USUAL_PORT  # that of the gateway that these settings may be for
    return FoundHere({} if port == USUAL_PORT else {"server.port": port}, nodes)


def _free_port() -> int:
    """Return the first port from the usual one on that nothing listens on; else the usual one."""
    for port in range(USUAL_PORT, USUAL_PORT + PORTS_TRIED):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    return USUAL_PORT
