"""One worker process, forked from the supervisor's."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import traceback
from typing import TYPE_CHECKING, Final, NoReturn

import typer

from forebay.cli.exits import DONE, FAILED
from forebay.cli.serve.event_loop import loop_factory
from forebay.cli.serve.failures import ending_with_words
from forebay.cli.serve.server import prepare_process, serve_until_stopped
from forebay.coordination.workers.parent_link import ParentLink
from forebay.gateway.logs import close_streams
from forebay.gateway.workers.seat import Seat

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from forebay.cli.serve.arguments import ServeArguments
    from forebay.gateway.workers.seat import Place

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Those that the parent acts on, and a worker does not."""


def run_worker(
    link: socket.socket, not_ours: Sequence[int], place: Place, arguments: ServeArguments
) -> NoReturn:
    """Serve as one of several in a process forked for it, and end the process.

    `not_ours` are descriptors of the parent that must not stay open here. Signals are held until
    this has begun.
    """
    status: object = FAILED
    try:
        prepare_process()  # first: what is printed from now on is not left to the parent's threads
        _leave_the_parent(not_ours)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_work(link, place, arguments))
        status = DONE
    except typer.Exit as ending:  # why has been said
        status = ending.exit_code
    except SystemExit as ending:
        status = ending.code
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            close_streams()
        finally:  # whatever is above us on the stack is the parent's, and not for us to go on with
            os._exit(status if isinstance(status, int) else FAILED)


def _leave_the_parent(not_ours: Sequence[int]) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)  # the parent's; its handlers do nothing without
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    for descriptor in not_ours:
        os.close(descriptor)


async def _work(sock: socket.socket, place: Place, arguments: ServeArguments) -> None:
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, _leave_it_to_the_parent)
    link = ParentLink()
    await link.connect(sock)
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
