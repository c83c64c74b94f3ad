"""Gateways that start again and ledgers that fail: what several tests of sessions do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from forebay.errors import StoreFailed
from forebay.gateway.gateway import Gateway

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pytest
    from sqlalchemy import Connection

    from ..conftest import Rig

UNWRITTEN = "cannot write prompts"


async def restart(rig: Rig) -> None:
    """Stop the gateway and start another on the same databases."""
    await rig.gateway.stop(0.0)
    await start_again(rig)


async def start_again(rig: Rig) -> None:
    """Start another gateway with the settings as they are now."""
    rig.gateway = Gateway(rig.read_settings(), clock=rig.clock, read_settings=rig.read_settings)
    await rig.stack.enter_async_context(rig.gateway)


class Broken:
    """A database whose writes fail from now on."""

    def __init__(self, rig: Rig) -> None:
        ledger = rig.gateway.parts.sessions._ledger
        assert ledger is not None
        self._rig = rig
        self._database = ledger._database
        self._write = self._database.write
        self._database.write = self._refuse  # type: ignore[method-assign]

    def _refuse(self, work: Any) -> Future[Any]:
        def fail(connection: Connection) -> None:
            raise StoreFailed("the disk is full")

        return self._write(fail)

    def mend(self) -> None:
        self._database.write = self._write  # type: ignore[method-assign]

    async def end(self) -> None:
        """Mend it, and let the time come at which what has failed, to the last, is tried again."""
        self.mend()
        await written(self._rig)
        self._rig.clock.advance(2.0)


async def written(rig: Rig) -> None:
    """Wait until everything that was to be written is."""
    ledger = rig.gateway.parts.sessions._ledger
    assert ledger is not None
    await asyncio.to_thread(ledger.flush().result, 10.0)


async def until_refused(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Wait until a write has failed, and the loop knows."""
    for _ in range(2000):
        await rig.queue()
        if UNWRITTEN in caplog.text:
            return
    raise AssertionError("no write has failed")
