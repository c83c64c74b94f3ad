"""`forebay demo`: see it all happen, with no model and no GPU."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.console import fail, say
from forebay.cli.start_failures import why_not_listening

if TYPE_CHECKING:
    from forebay.dashboard.words import Words

EPILOG = (
    "Everything is real but the models: the gateway, its queue, the HTTP calls of the scripted "
    "users, the node that dies. Open the page while it runs, or: forebay top --url URL"
)


def demo(
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the gateway; 0 takes a free one.")
    ] = 7800,
    once: Annotated[bool, typer.Option(help="Play every scene once, then end.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the moments at which people ask.")] = 1,
    pace: Annotated[
        float, typer.Option(min=0.02, max=10, help="How slowly: 2 takes twice the time.")
    ] = 1.0,
) -> None:
    """Watch a queue at work: three simulated nodes, a greedy script, two people, a batch."""
    logging.disable(logging.ERROR)  # a node that dies is part of the play
    try:
        asyncio.run(_demo(port, random.Random(seed), once=once, pace=pace))
    except OSError as error:
        fail(why_not_listening(error, "127.0.0.1", port, "forebay demo"))


async def _demo(port: int, chance: random.Random, *, once: bool, pace: float) -> None:
    from forebay.demo.play import play
    from forebay.demo.stage import Stage

    def caption(words: Words) -> None:
        say(f"  {words.en}")

    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as folder:
        async with Stage(Path(folder), caption, port=port, pace=pace) as stage:
            say("")
            say(f"The demo runs: open {stage.url}/ in a browser. Ctrl-C ends it.")
            say("")
            playing = asyncio.ensure_future(play(stage, chance, once=once))
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, playing.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await playing
            say("")
            say("That was the demo. To put Forebay in front of your own models: forebay serve")
