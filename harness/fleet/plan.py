"""What a fleet is made of, and the settings that all of its gateways share."""

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

TOKEN_VARIABLE = "GUARD_TOKEN"
MODELS = ("small", "large")


class NodePlan(Struct, frozen=True):
    """A node that is there already, or one that is to be simulated."""

    name: str
    slots: int = 2
    url: str = ""
    """Where it is; empty starts a simulated one."""


class FleetPlan(Struct, frozen=True):
    """How many of what, on this machine."""

    gateways: int = 2
    nodes: tuple[NodePlan, ...] = tuple(NodePlan(f"gpu{number}") for number in (1, 2, 3))
    coordinated: bool = True
    """One queue for all gateways. Without it they know nothing of each other: the control."""
    lease_s: float = 5.0
    guards: bool = False
    """Put a guard beside every node; nodes register through it."""
    postgres: bool = False
    """Jobs and sessions on one PostgreSQL; else each gateway keeps its own in a file."""
    haproxy: str = ""
    """HAProxy's settings, with `gateway-1:7800` and so on as addresses; empty starts none."""
    first_port: int = 0
    """Gateways listen on this port and those after it, HAProxy in front on the one before it; 0
    takes free ones."""
    settings: Mapping[str, Mapping[str, Any]] = {}
    """More settings, by section; they win."""
    variables: Mapping[int, Mapping[str, str]] = {}
    """What is different in the environment of a gateway, by its number."""
    command: tuple[str, ...] = ()
    """How to run `forebay` in the gateways, if not as it is installed."""
    links: bool = False
    """Put a link that can be cut between each gateway and the store."""


def settings_text(plan: FleetPlan, database: str) -> str:
    """Return the settings file of all gateways; what differs between them comes from outside."""
    sections: dict[str, dict[str, Any]] = {"server": {"access_log": True}}
    if plan.coordinated:
        sections["coordination"] = {"lease_seconds": plan.lease_s}
    if plan.guards:
        sections["guard"] = {"token_env": TOKEN_VARIABLE}
    if database:
        sections["jobs"] = {"database": database}
    for name, more in plan.settings.items():
        sections[name] = {**sections.get(name, {}), **more}
    text = "\n".join(_block(f"[{name}]", values) for name, values in sections.items())
    if plan.guards:
        return text
    nodes = [{"name": node.name, "url": node.url, "slots": node.slots} for node in plan.nodes]
    return "\n".join([text, *(_block("[[nodes]]", node) for node in nodes)])


def _block(head: str, values: Mapping[str, Any]) -> str:
    """Return a table of TOML; strings, numbers, booleans and lists are written as in JSON."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    return "\n".join([head, *lines, ""])
