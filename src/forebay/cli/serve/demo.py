"""`forebay demo`: a scripted load on simulated nodes, without a model or a GPU."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.invocation import as_called
from forebay.cli.output.console import fail, say
from forebay.cli.serve.start_failures import explain_listen_error

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from forebay.api.events import Words

USUAL_PORT = 7800
EPILOG = (
    "Everything is real but the models: the gateway, its queue, the HTTP calls of the scripted "
    "users, the node that dies. Open the page while it runs, or: forebay top --url URL"
)


def demo(
    *,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port of the gateway; default: 7800, or a free port if it is taken.",
        ),
    ] = None,
    once: Annotated[bool, typer.Option(help="Play every scene once, then exit.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the arrival times.")] = 1,
    pace: Annotated[
        float, typer.Option(min=0.02, max=10, help="Slow-down factor: 2 takes twice as long.")
    ] = 1.0,
) -> None:
    """Watch a queue at work: three simulated nodes, a greedy script, two people, a batch."""
    logging.disable(logging.ERROR)  # a node that dies is part of the play
    wanted = _free_port() if port is None else port
    try:
        asyncio.run(_until_told(_demo(wanted, random.Random(seed), once=once, pace=pace)))
    except OSError as error:
        fail(explain_listen_error(error, "127.0.0.1", wanted, "demo"))
    say("")
    say(f"That was the demo. To put Forebay in front of your models: {as_called('serve')}")


def _free_port() -> int:
    """Return 7800 unless something listens there, such as the gateway that one tried before."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", USUAL_PORT))
        except OSError:
            return 0
    return USUAL_PORT


async def _until_told(play: Coroutine[None, None, None]) -> None:
    """Play until it ends, or until Ctrl-C, a signal or a closed terminal; leave nothing behind."""
    playing = asyncio.ensure_future(play)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, playing.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await playing


async def _demo(port: int, chance: random.Random, *, once: bool, pace: float) -> None:
    from forebay.demo.scenes import play
    from forebay.demo.setup import DemoSetup

    def caption(words: Words) -> None:
        say(f"  {words.en}")

    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as folder:
        async with DemoSetup(Path(folder), caption, port=port, pace=pace) as setup:
            say("")
            say(f"The demo runs: open {setup.url}/ in a browser. Ctrl-C ends it.")
            say("")
            await play(setup, chance, once=once)
