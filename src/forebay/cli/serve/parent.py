"""Run the parent of several workers, from start to shutdown."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from typing import TYPE_CHECKING

from forebay.cli.serve.listening import listen
from forebay.cli.serve.server import prepare_process
from forebay.cli.serve.supervisor import Supervisor
from forebay.cli.serve.worker import SIGNALS, run_worker

if TYPE_CHECKING:
    from forebay.cli.serve.arguments import ServeArguments
    from forebay.cli.serve.supervisor import Fork
    from forebay.settings import ServerSettings

    Sockets = list[list[socket.socket]]


def run_workers(server: ServerSettings, workers: int, arguments: ServeArguments) -> int:
    """Serve with several processes until told to stop; return the exit status.

    Raises OSError where the port is taken.
    """
    prepare_process()
    sockets = listen(server.host, server.port, workers)
    gc.collect()
    gc.freeze()  # a collection would write to memory that the workers share
    connected: list[socket.socket] = []
    with asyncio.Runner() as runner:
        begin = _begin(sockets, server.shutdown_seconds, is_fatal=arguments.self_check)
        supervisor, running = runner.run(begin)
        while (fork := runner.run(supervisor.next_fork())) is not None:
            connected = [sock for sock in connected if sock.fileno() >= 0]
            _fork(fork, connected, arguments)
        return runner.run(_result(running))


async def _begin(
    sockets: Sockets, shutdown_s: float, *, is_fatal: bool
) -> tuple[Supervisor, asyncio.Task[int]]:
    supervisor = Supervisor(sockets, shutdown_s=shutdown_s, is_fatal=is_fatal)
    return supervisor, asyncio.ensure_future(supervisor.run())


async def _result(running: asyncio.Task[int]) -> int:
    return await running


def _fork(fork: Fork, connected: list[socket.socket], arguments: ServeArguments) -> None:
    """Fork a worker. It closes our ends of the sockets: it would keep them open without us."""
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        fork.fail(error)
        return
    ours.setblocking(False)
    not_its = [sock.fileno() for sock in (*connected, ours)]
    # Until it takes signals itself, a worker would pass them on to us.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        pid = os.fork()
        if pid == 0:
            run_worker(theirs, not_its, fork.place, arguments)
    except OSError as error:
        ours.close()
        fork.fail(error)
    else:
        connected.append(ours)
        fork.finish(pid, ours)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
