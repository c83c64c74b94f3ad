"""`forebay nodes`: see and change the nodes of a running gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from forebay.cli.exits import USAGE
from forebay.cli.gateway import AsJson, GatewayClient, GatewayUrl, KeyEnv
from forebay.cli.invocation import at_gateway
from forebay.cli.offers import kinds, node_names
from forebay.cli.output.console import counted, fail, tell, tell_json
from forebay.cli.output.tables import node_table, show
from forebay.cli.output.text import printable
from forebay.cli.verbs import SynonymGroup

if TYPE_CHECKING:
    from forebay.api.nodes import Node
    from forebay.cli.gateway import GatewayReply

nodes_app = typer.Typer(
    name="nodes",
    cls=SynonymGroup,
    help="List, add, remove, drain and resume the nodes of a running gateway.",
    epilog="Changes last until the gateway stops; forebay.toml is not changed.",
    no_args_is_help=True,
)

NodeName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of the node, from `forebay nodes list`.",
        autocompletion=node_names,
    ),
]


@nodes_app.command("list")
def list_nodes(url: GatewayUrl = None, key_env: KeyEnv = "", as_json: AsJson = False) -> None:
    """Show every node: its state, its slots and its models."""
    from forebay.api.nodes import NodeList

    reply = GatewayClient(url, key_env).insist("GET", "/admin/nodes", NodeList)
    if as_json:
        tell_json(reply.raw["data"])
    elif reply.value.data:
        show(node_table(reply.value.data))
        for node in reply.value.data:
            if node.slots_reason:
                slots = counted(node.slots, "slot")
                tell(f"{printable(node.name)} has {slots}: {printable(node.slots_reason)}")
    else:
        tell(f"There are no nodes. Add one with: {at_gateway('nodes add URL')}")


@nodes_app.command()
def add(  # noqa: PLR0913 - Typer reads the options from the signature
    node_url: Annotated[
        str, typer.Argument(metavar="URL", help="Where the node listens: http://HOST:PORT")
    ],
    *,
    name: Annotated[
        str | None, typer.Option(help="Name of the node; default: from host and port.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="Kind of server; default: detected.", autocompletion=kinds),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(min=0, help="Maximum concurrent requests; 0, the default, finds the number."),
    ] = None,
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Add a node; the gateway uses it as soon as it answers."""
    given = {"url": node_url, "name": name, "kind": kind, "slots": slots}
    body = {key: value for key, value in given.items() if value is not None}
    _check(body)
    from forebay.api.nodes import Node

    reply = GatewayClient(url, key_env).insist("POST", "/admin/nodes", Node, body)
    said = f"was added; `{at_gateway('nodes list')}` shows when it is online"
    _say(reply.value.name, said, reply.raw if as_json else None)


@nodes_app.command()
def remove(
    name: NodeName, url: GatewayUrl = None, key_env: KeyEnv = "", as_json: AsJson = False
) -> None:
    """Remove a node; requests running there may finish."""
    client = GatewayClient(url, key_env)
    client.insist("DELETE", f"/admin/nodes/{quote(name, safe='')}", object)
    said = "was removed; running requests may finish"
    _say(name, said, {"name": name} if as_json else None)


@nodes_app.command()
def drain(
    name: NodeName, url: GatewayUrl = None, key_env: KeyEnv = "", as_json: AsJson = False
) -> None:
    """Start no new requests on a node; running ones continue."""
    reply = _tell(name, "drain", GatewayClient(url, key_env))
    still = f"{reply.value.in_flight} requests still run there"
    said = f"is draining; {still}. Undo with: {at_gateway(f'nodes resume {name}')}"
    _say(reply.value.name, said, reply.raw if as_json else None)


@nodes_app.command()
def resume(
    name: NodeName, url: GatewayUrl = None, key_env: KeyEnv = "", as_json: AsJson = False
) -> None:
    """Use a drained node again."""
    reply = _tell(name, "resume", GatewayClient(url, key_env))
    said = f"is used again; it is {reply.value.state}"
    _say(reply.value.name, said, reply.raw if as_json else None)


def _check(body: dict[str, Any]) -> None:
    """End the command where a node cannot be so, before a gateway is asked."""
    from forebay.settings import SettingsError, parse_node  # not for a list of options

    try:
        parse_node(body)
    except SettingsError as error:
        problem = error.problems[0]
        option = "URL" if problem.key == "url" else f"--{problem.key}"
        given = body.get(problem.key, "")
        fail(f"{option} {given}: it {problem.wrong}; {problem.instead}.", code=USAGE)


def _tell(name: str, verb: str, client: GatewayClient) -> GatewayReply[Node]:
    from forebay.api.nodes import Node

    return client.insist("POST", f"/admin/nodes/{quote(name, safe='')}/{verb}", Node)


def _say(name: str, said: str, raw: object | None) -> None:
    """Say what became of a node; as JSON where that is given."""
    if raw is not None:
        tell_json(raw)
    else:
        tell(f"Node {printable(name)} {printable(said)}.")
