"""`forebay status`: how a running gateway is doing, in one look."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.text import Text

from forebay.cli.exits import DONE, FAILED
from forebay.cli.gateway import AsJson, GatewayClient, GatewayUrl, KeyEnv
from forebay.cli.invocation import at_gateway
from forebay.cli.output.console import tell, tell_json
from forebay.cli.output.tables import node_table, plain_table, show
from forebay.cli.output.text import printable

if TYPE_CHECKING:
    from rich.table import Table

    from forebay.api.nodes import NodeList
    from forebay.api.queue import Fleet, Queue
    from forebay.cli.gateway import GatewayReply

MODELS_SHOWN, SHORT_MODELS_SHOWN = 20, 5
OLD_S = 1.0
"""Younger figures are as good as new."""
MODES = {
    "coordinated": "one queue for all gateways",
    "seeking": "looking for a leader; new requests wait",
    "alone": "ALONE: the shared store is unreachable; the figures are those of this gateway only",
    "cut_off": "CUT OFF: this gateway cannot reach the shared store; nothing new starts here",
}


class GatewayStatus(NamedTuple):
    """All that `forebay status` shows."""

    url: str
    reason: str
    """Why it is not ready; empty where it is."""
    queue: GatewayReply[Queue]
    models: list[str]
    nodes: GatewayReply[NodeList] | None
    """None where only an admin may see them."""

    def as_json(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "ready": not self.reason,
            "reason": self.reason,
            "queue": self.queue.raw,
            "nodes": None if self.nodes is None else self.nodes.raw["data"],
            "models": self.models,
        }


def status(
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    everything: Annotated[
        bool,
        typer.Option("--all", "-a", help="Show all nodes and values; the default in a pipe."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the queue, the nodes and the models of a gateway, or of its whole fleet.

    On a terminal it is short: a summary, and the nodes that are in trouble.

    Exits with 0 when it is ready, 1 when it is not, 3 when none can be reached, 4 when
    it wants a key.
    """
    client = GatewayClient(url, key_env)
    with client.or_exit():
        seen = _look(client)
    if as_json:
        tell_json(seen.as_json())
    elif everything or not sys.stdout.isatty():
        _show(seen)
    else:
        _show_short(seen)
    raise typer.Exit(FAILED if seen.reason else DONE)


def _look(client: GatewayClient) -> GatewayStatus:
    """Ask for everything; raises SdkError."""
    from forebay.api.models import ModelList
    from forebay.api.nodes import NodeList
    from forebay.api.queue import Queue
    from forebay.sdk import GatewayError

    reason = ""
    try:
        client.ask("GET", "/ready", object)
    except GatewayError as refused:
        if refused.code not in ("no_node", "shutting_down", "coordination_lost"):
            raise
        reason = printable(refused.message)
    queue = client.ask("GET", "/v1/queue", Queue)
    models = client.ask("GET", "/v1/models", ModelList).value.data
    nodes = None
    with contextlib.suppress(GatewayError):
        nodes = client.ask("GET", "/admin/nodes", NodeList)
    return GatewayStatus(client.url, reason, queue, [model.id for model in models], nodes)


def _show_short(seen: GatewayStatus) -> None:
    """Say in a few lines how it is, and what is not well."""
    _show_state(seen)
    queue = seen.queue.value
    tell(
        f"Queue: {_waiting(queue)} waiting, {queue.processing} running; "
        f"{queue.served_total} served, {queue.rejected_total} refused, "
        f"{queue.timeouts_total} timed out; mean wait {_mean(queue.average_wait_seconds, queue)}"
    )
    if queue.fleet is not None:
        lost = [printable(each.name) for each in queue.fleet.replicas if each.state == "lost"]
        tell("; lost: ".join([f"Fleet: {_mode(queue.fleet)}", *lost]))
    nodes = [] if seen.nodes is None else seen.nodes.value.data
    if not nodes:
        _show_nodes(seen)
    else:
        states = Counter(printable(node.state) for node in nodes)
        tell(f"Nodes: {', '.join(f'{count} {state}' for state, count in states.items())}")
        if troubled := [node for node in nodes if node.state != "online" or node.failing]:
            show(node_table(troubled))
    _show_models(seen, SHORT_MODELS_SHOWN)
    tell(f"Everything: {at_gateway('status --all')}")


def _show_state(seen: GatewayStatus) -> None:
    state = f"NOT ready: {seen.reason}" if seen.reason else "ready"
    tell(f"Forebay at {seen.url} is {state}")


def _show(seen: GatewayStatus) -> None:
    _show_state(seen)
    queue = seen.queue.value
    show(_queue_table(queue))
    if queue.fleet is not None:
        _show_fleet(queue.fleet)
    _show_nodes(seen)
    _show_models(seen, MODELS_SHOWN)


def _show_nodes(seen: GatewayStatus) -> None:
    if seen.nodes is None:
        tell("Nodes: only an admin key may see them (--key-env VAR).")
    elif not seen.nodes.value.data:
        tell(f"Nodes: none. Add one with: {at_gateway('nodes add URL')}")
    else:
        show(node_table(seen.nodes.value.data))


def _show_models(seen: GatewayStatus, most: int) -> None:
    models = [printable(name) for name in seen.models]
    more = f" and {len(models) - most} more" if len(models) > most else ""
    tell(f"Models: {', '.join(models[:most]) or 'none'}{more}")


def _mode(fleet: Fleet) -> str:
    mode = printable(fleet.mode)
    return MODES.get(mode, mode)


def _show_fleet(fleet: Fleet) -> None:
    tell(f"Fleet: {_mode(fleet)} (leader no. {fleet.epoch})")
    age_s = fleet.counted_seconds_ago
    if age_s is None or age_s > OLD_S:
        how_old = "have never been received" if age_s is None else f"are {age_s:.0f} s old"
        tell(f"The figures above {how_old}: no leader answers.")
    columns = ["Gateway", "State", "Version", "Waiting", "Running", "Lent", "Heard", "Note"]
    is_placed = any(replica.address for replica in fleet.replicas)
    table = plain_table(*columns, *(["Address"] if is_placed else []))
    for replica in fleet.replicas:
        state = printable(replica.state)
        notes = ["this one"] if replica.name == fleet.me else []
        notes += [] if replica.same_settings else ["other settings"]
        table.add_row(
            printable(replica.name),
            Text(state, "red" if state == "lost" else "green"),
            printable(replica.version),
            *(str(count) for count in (replica.waiting, replica.running, replica.lent)),
            f"{replica.heard_seconds:.1f} s ago",
            ", ".join(notes),
            *([printable(replica.address or "")] if is_placed else []),
        )
    show(table)


def _waiting(queue: Queue) -> str:
    waits = {printable(name): count for name, count in queue.by_priority.items()}
    waiting = ", ".join(f"{count} {name}" for name, count in waits.items() if count)
    return f"{queue.waiting} of {queue.max_size}" + (f" ({waiting})" if waiting else "")


def _queue_table(queue: Queue) -> Table:
    table = plain_table(
        "Waiting", "Running", "Mean wait", "Mean run", "Completed", "Refused", "Timed out"
    )
    table.add_row(
        _waiting(queue),
        str(queue.processing),
        _mean(queue.average_wait_seconds, queue),
        _mean(queue.average_service_seconds, queue),
        str(queue.served_total),
        str(queue.rejected_total),
        str(queue.timeouts_total),
    )
    return table


def _mean(seconds: float, queue: Queue) -> str:
    """Return a mean, or a dash: before anything was served the gateway says 0."""
    return f"{seconds:.1f} s" if seconds or queue.served_total else "-"
