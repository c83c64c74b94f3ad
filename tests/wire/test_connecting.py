"""Why a server cannot be reached, in words that say nothing of where it is."""

from __future__ import annotations

import asyncio
import socket

import pytest

from forebay.errors import BackendFailed
from forebay.wire.client import Pool
from forebay.wire.target import Target


def test_a_refused_connection_is_told_without_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    async def connect() -> None:
        await Pool(Target("127.0.0.1", port, None, 5.0)).connect()

    # Python's own loop, whose errors carry the address; uvloop's do not.
    with (
        asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner,
        pytest.raises(BackendFailed) as caught,
    ):
        runner.run(connect())
    assert str(caught.value) == "cannot connect: Connection refused"
