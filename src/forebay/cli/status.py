"""`forebay status`: how a running gateway is doing, in one look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from forebay.cli.exits import DONE, FAILED
from forebay.cli.gateway_client import (
    AsJson,
    GatewayClient,
    GatewayRefused,
    GatewayUrl,
    KeyEnv,
    printable,
)
from forebay.cli.invocation import as_called
from forebay.cli.output.console import tell, tell_json
from forebay.cli.output.tables import node_table, plain_table, show
from forebay.cli.shapes import Anything, Models, Nodes, Queue

if TYPE_CHECKING:
    from rich.table import Table

MODELS_SHOWN = 20
OLD_S = 1.0
"""Younger figures are as good as new."""
MODES = {
    "coordinated": "one queue for all gateways",
    "seeking": "looking for a leader; newcomers wait",
    "alone": "ALONE: the shared store is out of reach, and the figures are of this gateway only",
    "cut_off": "CUT OFF: this gateway cannot reach the shared store; nothing new starts here",
}


def status(url: GatewayUrl = None, key_env: KeyEnv = "", as_json: AsJson = False) -> None:
    """Show the queue, the nodes and the models of a gateway, or of its whole fleet.

    Exits with 0 when it is ready, 1 when it is not, 3 when none can be reached, 4 when
    it wants a key.
    """
    client = GatewayClient(url, key_env)
    seen = _look(client)
    if as_json:
        tell_json(seen)
    else:
        _show(seen)
    raise typer.Exit(DONE if seen["ready"] else FAILED)


def _look(client: GatewayClient) -> dict[str, Any]:
    """Ask for everything; the nodes are None where only an admin may see them."""
    reason = ""
    try:
        client.ask("GET", "/ready", shape=Anything)
    except GatewayRefused as refused:
        if refused.code not in ("no_node", "shutting_down", "coordination_lost"):
            client.give_up(refused)
        reason = str(refused)
    queue = client.insist("GET", "/v1/queue", shape=Queue)
    listed = client.insist("GET", "/v1/models", shape=Models)["data"]
    models = [model["id"] for model in listed]
    try:
        nodes = client.ask("GET", "/admin/nodes", shape=Nodes)["data"]
    except GatewayRefused:
        nodes = None
    return {
        "url": client.url,
        "ready": not reason,
        "reason": reason,
        "queue": queue,
        "nodes": nodes,
        "models": models,
    }


def _show(seen: dict[str, Any]) -> None:
    state = "ready" if seen["ready"] else f"NOT ready: {seen['reason']}"
    tell(f"Forebay at {seen['url']} is {state}")
    show(_queue_table(seen["queue"]))
    if "fleet" in seen["queue"]:
        _show_fleet(seen["queue"]["fleet"])
    if seen["nodes"] is None:
        tell("Nodes: only an admin key may see them (--key-env VAR).")
    elif not seen["nodes"]:
        tell(f"Nodes: none. Add one with: {as_called('nodes add URL')}")
    else:
        show(node_table(seen["nodes"]))
    models = [printable(name) for name in seen["models"]]
    more = f" and {len(models) - MODELS_SHOWN} more" if len(models) > MODELS_SHOWN else ""
    tell(f"Models: {', '.join(models[:MODELS_SHOWN]) or 'none'}{more}")


def _show_fleet(fleet: dict[str, Any]) -> None:
    """Show the gateways that share the queue."""
    mode = printable(fleet["mode"])
    tell(f"Fleet: {MODES.get(mode, mode)} (leader no. {fleet['epoch']})")
    age_s = fleet["counted_seconds_ago"]
    if age_s is None or age_s > OLD_S:
        how_old = "have never been told" if age_s is None else f"are {age_s:.0f} s old"
        tell(f"The figures above {how_old}: no leader answers.")
    columns = ["Gateway", "State", "Version", "Waiting", "Running", "Lent", "Heard", "Note"]
    is_placed = any("address" in replica for replica in fleet["replicas"])
    table = plain_table(*columns, *(["Address"] if is_placed else []))
    for replica in fleet["replicas"]:
        state = printable(replica["state"])
        notes = ["this one"] if replica["name"] == fleet["me"] else []
        notes += [] if replica["same_settings"] else ["other settings"]
        table.add_row(
            printable(replica["name"]),
            Text(state, "red" if state == "lost" else "green"),
            printable(replica["version"]),
            *(str(replica[name]) for name in ("waiting", "running", "lent")),
            f"{replica['heard_seconds']:.1f} s ago",
            ", ".join(notes),
            *([printable(replica.get("address", ""))] if is_placed else []),
        )
    show(table)


def _queue_table(queue: dict[str, Any]) -> Table:
    waits = {printable(name): count for name, count in queue["by_priority"].items()}
    waiting = ", ".join(f"{count} {name}" for name, count in waits.items() if count)
    table = plain_table(
        "Waiting", "Running", "Mean wait", "Mean run", "Served", "Refused", "Timed out"
    )
    table.add_row(
        f"{queue['waiting']} of {queue['max_size']}" + (f" ({waiting})" if waiting else ""),
        str(queue["processing"]),
        _mean(queue, "average_wait_seconds"),
        _mean(queue, "average_service_seconds"),
        str(queue["served_total"]),
        str(queue["rejected_total"]),
        str(queue["timeouts_total"]),
    )
    return table


def _mean(queue: dict[str, Any], name: str) -> str:
    """Return a mean, or a dash: before anything was served the gateway says 0."""
    if not queue[name] and not queue["served_total"]:
        return "-"
    return f"{queue[name]:.1f} s"
