"""Running several workers: the parent's process, from its first to its last moment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from forebay.cli.serve.listening import listen
from forebay.cli.serve.supervisor import Supervisor
from forebay.gateway.logs import set_up_logging

if TYPE_CHECKING:
    import socket

    from forebay.cli.serve.arguments import ServeArguments
    from forebay.settings import ServerSettings

    Sockets = list[list[socket.socket]]


def run_workers(server: ServerSettings, workers: int, arguments: ServeArguments) -> int:
    """Serve with several processes until told to stop; return the exit status.

    Raises OSError where the port is taken.
    """
    set_up_logging()
    sockets = listen(server.host, server.port, workers)
    with asyncio.Runner() as runner:
        return runner.run(_supervise(sockets, server.shutdown_seconds, arguments))


async def _supervise(sockets: Sockets, shutdown_s: float, arguments: ServeArguments) -> int:
    supervisor = Supervisor(
        sockets,
        msgspec.to_builtins(arguments),
        shutdown_s=shutdown_s,
        is_fatal=arguments.self_check,
    )
    return await supervisor.run()
