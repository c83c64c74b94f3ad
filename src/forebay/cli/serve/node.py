"""`forebay node`: the guard beside a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.exits import USAGE
from forebay.cli.invocation import EVERYWHERE, bracketed
from forebay.cli.output.console import fail
from forebay.cli.serve.start_failures import explain_listen_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from forebay.guard.guard import GuardOptions
    from forebay.settings import NodeSettings


Slots = Annotated[
    int, typer.Option(min=0, max=10_000, help="Maximum concurrent requests; 0 asks the backend.")
]
ModelSlots = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN=N",
        help="Slots beside these for the models that match only, such as nomic-embed-*=8; may be "
        "repeated.",
    ),
]


def node(  # noqa: PLR0913 - Typer reads the options from the signature
    *,
    backend: Annotated[
        str, typer.Option(metavar="URL", help="The model server, such as http://127.0.0.1:11434.")
    ],
    gateway: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="A gateway to register with; may be repeated."),
    ] = None,
    advertise: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Address at which gateways reach this guard; default: from host and port.",
        ),
    ] = "",
    name: Annotated[
        str, typer.Option(help="Name of the node in the gateways; default: from its address.")
    ] = "",
    token_env: Annotated[
        str, typer.Option(help="Environment variable with the token shared with the gateways.")
    ] = "",
    slots: Slots = 0,
    model_slots: ModelSlots = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 7900,
    api_key_env: Annotated[
        str, typer.Option(help="Environment variable with the backend's API key.")
    ] = "",
    run_seconds: Annotated[
        float, typer.Option(min=0, help="Time limit of a request; 0: no limit.")
    ] = 3600.0,
    shutdown_seconds: Annotated[
        float,
        typer.Option(min=0, help="Time that running requests get to finish after a stop signal."),
    ] = 30.0,
) -> None:
    """Guard a model server: admit as many requests as it has slots, answer 429 to others."""
    from forebay.guard.guard import GuardOptions
    from forebay.settings import SettingsError, read_secret

    try:
        options = GuardOptions(
            backend=_root("--backend", backend),
            host=host,
            port=port,
            slots=slots,
            model_slots=_model_slots(backend, model_slots or ()),
            gateways=tuple(_root("--gateway", url) for url in gateway or ()),
            advertise=_root("--advertise", advertise) if advertise else "",
            name=name,
            token=read_secret("--token-env", token_env) or "",
            api_key=read_secret("--api-key-env", api_key_env) or "",
            run_s=run_seconds,
            shutdown_s=shutdown_seconds,
        )
    except SettingsError as error:
        problem = error.problems[0]
        fail(f"{problem.key}: {problem.wrong}; {problem.instead}.", code=USAGE)
    _run(_checked(options))


def _model_slots(url: str, given: Iterable[str]) -> Mapping[str, int]:
    """Return the numbers by pattern, or end the command with what is wrong with one of them."""
    from forebay.settings import SettingsError, parse_node

    numbers: dict[str, int] = {}
    for text in given:
        pattern, _, number = text.rpartition("=")
        try:
            told = {pattern: int(number) if number.isdecimal() else number}
            numbers.update(parse_node({"url": url, "model_slots": told}).model_slots)
        except SettingsError:
            fail(f"--model-slots {text}: write PATTERN=N, such as nomic-embed-*=8.", code=USAGE)
    return numbers


def _root(option: str, url: str) -> str:
    """Return a URL in its plain form, or end the command with what is wrong with it."""
    return _parsed(option, url, url=url).url


def _parsed(option: str, given: str, **node: str) -> NodeSettings:
    """Return a node, or end the command with what is wrong with an option."""
    from forebay.settings import SettingsError, parse_node

    try:
        return parse_node(node)
    except SettingsError as error:
        problem = error.problems[0]
        fail(f"{option} {given}: it {problem.wrong}; {problem.instead}.", code=USAGE)


def _checked(options: GuardOptions) -> GuardOptions:
    """Return the options with an address that the gateways can use; ends the command if none is."""
    from msgspec.structs import replace

    if options.gateways and not options.token:
        fail(
            "--gateway needs --token-env: gateways accept only guards that know their token. Name "
            "the environment variable that holds it; the gateway's is named by guard.token_env.",
            code=USAGE,
        )
    if options.name:
        _parsed("--name", options.name, url=options.backend, name=options.name)
    if options.advertise or not options.gateways:
        return options
    return replace(options, advertise=_advertised(options.host, options.port, options.gateways))


def _advertised(host: str, port: int, gateways: Sequence[str]) -> str:
    """Return where gateways reach us; "" is where we listen, once that is known."""
    import socket

    from forebay.nodes.gpu import is_loopback

    there = [url for url in gateways if not is_loopback(url)]
    if there and host in EVERYWHERE:
        if not port:
            fail("with --port 0, say where gateways reach this guard: --advertise.", code=USAGE)
        return _root("--advertise", f"http://{socket.gethostname()}:{port}")
    if there and is_loopback(f"http://{bracketed(host)}"):
        fail(
            f"{there[0]} cannot reach {host} of this machine. Listen on an address that it can "
            "reach, and name it: "
            "--host 0.0.0.0 --advertise http://THIS-HOST:7900.",
            code=USAGE,
        )
    return ""


def _run(options: GuardOptions) -> None:
    from forebay.cli.serve.guard import run_guard
    from forebay.gateway.logs import close_streams

    try:
        run_guard(options)
    except OSError as error:
        fail(explain_listen_error(error, options.host, options.port, "node"))
    finally:
        close_streams()
