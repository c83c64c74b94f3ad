"""`forebay models`: which models a gateway offers, and where they run."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from forebay.cli.gateway import AsJson, GatewayClient, GatewayUrl, KeyEnv
from forebay.cli.invocation import at_gateway
from forebay.cli.output.console import tell, tell_json
from forebay.cli.output.tables import plain_table, show
from forebay.cli.output.text import printable

if TYPE_CHECKING:
    from forebay.api.models import ModelCard
    from forebay.api.nodes import Node


def models(url: GatewayUrl = None, key_env: KeyEnv = "", as_json: AsJson = False) -> None:
    """Show the models of a gateway, and the nodes that have them.

    Which nodes, and where a model is in memory, is for whoever may use /admin.
    """
    from forebay.api.models import ModelList
    from forebay.api.nodes import NodeList
    from forebay.sdk import GatewayError

    client = GatewayClient(url, key_env)
    listed = client.insist("GET", "/v1/models", ModelList)
    nodes = None
    with client.or_exit(GatewayError), contextlib.suppress(GatewayError):
        nodes = client.ask("GET", "/admin/nodes", NodeList).value.data
    if as_json:
        tell_json([_as_json(model, nodes) for model in listed.value.data])
    elif listed.value.data:
        _show(listed.value.data, nodes)
    else:
        tell(f"There are no models. Add a node with: {at_gateway('nodes add URL')}")


def _as_json(model: ModelCard, nodes: list[Node] | None) -> dict[str, object]:
    shown: dict[str, object] = {"id": model.id}
    if nodes is not None:
        shown["nodes"] = _having(model.id, nodes)
        shown["loaded"] = _holding(model.id, nodes)
    return shown


def _show(models: list[ModelCard], nodes: list[Node] | None) -> None:
    table = plain_table("Model", *(["Nodes", "In memory on"] if nodes is not None else []))
    for model in models:
        places = (_having(model.id, nodes), _holding(model.id, nodes)) if nodes is not None else ()
        table.add_row(
            printable(model.id), *(", ".join(map(printable, names)) or "-" for names in places)
        )
    show(table)


def _having(model: str, nodes: list[Node]) -> list[str]:
    return [node.name for node in nodes if model in node.models]


def _holding(model: str, nodes: list[Node]) -> list[str]:
    """Return the nodes that need not load it first."""
    return [
        node.name
        for node in nodes
        if model in (node.models if node.loaded is None else node.loaded)
        and node.state in ("online", "draining")
    ]
