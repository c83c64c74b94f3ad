"""One worker process: `python -m forebay.cli.serve.worker FD`, started by the supervisor."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import sys
from contextlib import suppress

import msgspec
import typer

from forebay.cli.serve.arguments import ServeArguments
from forebay.cli.serve.event_loop import loop_factory
from forebay.cli.serve.failures import ending_with_words
from forebay.cli.serve.server import prepare_process, serve_until_stopped
from forebay.coordination.workers.parent_link import ParentLink
from forebay.gateway.workers.seat import Seat


def main(descriptor: int) -> None:
    """Serve as one of several, until the parent says to stop or is gone."""
    prepare_process()
    try:
        _run(descriptor)
    except typer.Exit as ending:  # why has been said
        sys.exit(ending.exit_code)


def _run(descriptor: int) -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner, suppress(ConnectionError):
        runner.run(_work(socket.socket(fileno=descriptor)))


async def _work(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, _leave_it_to_the_parent)
    link = ParentLink()
    place = await link.connect(sock)
    arguments = msgspec.convert(place.command, ServeArguments)
    settings = arguments.read()
    seat = Seat(place, link, random.SystemRandom())
    try:
        with ending_with_words(settings):
            await serve_until_stopped(settings, arguments, seat)
    finally:
        seat.close()
        link.close()


def _leave_it_to_the_parent() -> None:
    """Signals for the whole group of processes reach the parent, too, and it knows which counts."""


if __name__ == "__main__":
    main(int(sys.argv[1]))
