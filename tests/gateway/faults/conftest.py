"""A rig that watches what every row of FAULTS.md asserts besides its own point.

When a test is over its clients leave, and then: every slot is free, nobody waits, no time limit is
still counted, `/health` answers, no exception went unhandled, and neither a prompt nor a secret is
in the log or in the access log.
"""

from __future__ import annotations

import asyncio
import io
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from forebay.gateway.hot.access_log import AccessLog
from forebay.gateway.logs import Outlet

from ..conftest import CHAT, Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from forebay.gateway.gateway import Gateway
    from forebay.testing import FakeNode, RawClient

__all__ = ["CHAT"]

PROMPT = "Xyzzy-the-prompt"
"""Said in every request of these tests; it must be in no log."""
SECRETS = ("sk-first-0123456789", "sk-second-9876543210", "sk-admin-5550123", "node-secret-777")
FIRST, SECOND, ADMIN, NODE_KEY = SECRETS
ENVIRON = {"FIRST": FIRST, "SECOND": SECOND, "ADMIN": ADMIN, "NODE_KEY": NODE_KEY}
MESSAGES = [{"role": "user", "content": PROMPT}]
EVENT = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
TURNS_MAX = 2000


class FaultRig(Rig):
    """A rig with an access log and with everybody's prompt and keys known to it."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        super().__init__(stack, folder)
        self.access_log = io.BytesIO()
        self.clients: list[RawClient] = []
        self.expected_errors: list[str] = []
        """Parts of the messages of the errors that a test means to see in the log."""

    async def start(self, *nodes: FakeNode, **settings: Any) -> Gateway:
        """Start the gateway in front of these nodes, named n1, n2, ..."""
        settings["server"] = {"public_status": True, **settings.get("server", {})}
        log = AccessLog(Outlet(self.access_log.write))
        return await super().start(*nodes, environ=ENVIRON, log=log, **settings)

    async def client(self, **options: Any) -> RawClient:
        """Connect a client."""
        client = await super().client(**options)
        self.clients.append(client)
        return client

    async def ask(self, model: str = "m", path: str = CHAT, **more: Any) -> RawClient:
        """Send a request on a connection of its own; `headers` go into the head."""
        return await super().ask(model, path, **{"messages": MESSAGES, **more})

    async def healthy(self) -> None:
        """See that the gateway is alive while something goes wrong."""
        assert (await self.get("/health")).status == 200

    async def metric(self, line: str) -> float:
        """Return the value of one series, 0 while it is not there."""
        text = (await self.get("/metrics")).body.decode()
        found = [x.rpartition(" ")[2] for x in text.splitlines() if x.rpartition(" ")[0] == line]
        return float(found[0]) if found else 0.0

    async def until(self, reached: Callable[[], bool], complaint: str) -> None:
        """Let the loop turn until something has happened on its sockets."""
        for _ in range(TURNS_MAX):
            if reached():
                return
            await self.queue()
        raise AssertionError(complaint)

    def limits_counted(self) -> dict[str, int]:
        """Return how many exchanges each kind of time limit still counts."""
        relay = self.gateway.parts.relay
        kinds = ("keepalive", "first_bytes", "runs", "gaps")
        return {kind: len(getattr(relay, kind)) for kind in kinds}

    async def check(self) -> None:
        """Let everyone leave, and see that nothing is left of them."""
        for client in self.clients:
            client.close()
        self.clients.clear()
        parts = self.gateway.parts
        if not parts.readiness.draining:
            await self.healthy()
            await self.until(lambda: not parts.relay.exchanges, "a request outlived its client")
            seen = await parts.queue_observer.snapshot()
            assert (seen.running, seen.waiting) == (0, 0)
            assert [node.name for node in seen.nodes if node.in_flight] == []
        assert set(self.limits_counted().values()) == {0}
        for backend in parts.nodes:
            openings = backend.pool.openings
            await self.until(lambda: not openings, "a connect outlived its request")  # noqa: B023

    def check_logs(self, records: list[logging.LogRecord]) -> None:
        """See that nothing failed unexpectedly and nothing secret was said."""
        texts = [str({**record.__dict__, "msg": record.getMessage()}) for record in records]
        texts.append(self.access_log.getvalue().decode())
        for text in texts:
            assert not [secret for secret in (PROMPT, *SECRETS) if secret in text]
        errors = [record.getMessage() for record in records if record.levelno >= logging.ERROR]
        assert [e for e in errors if not any(part in e for part in self.expected_errors)] == []
        assert not [record for record in records if record.exc_info]


@pytest.fixture
async def rig(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[FaultRig]:
    """Give the test its rig, and check afterwards what holds for every row."""
    unhandled: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: unhandled.append(context))
    caplog.set_level(logging.DEBUG, "forebay")
    caplog.set_level(logging.DEBUG, "uvicorn")
    async with AsyncExitStack() as stack:
        rig = FaultRig(stack, tmp_path)
        yield rig
        await rig.check()
    assert unhandled == []
    rig.check_logs(caplog.records)


def key(name: str, **more: Any) -> dict[str, Any]:
    """Return the settings of a key; its text is in the variable of its name in capitals."""
    return {"name": name, "key_env": name.upper(), **more}


def bearer(secret: str, **more: str) -> dict[str, str]:
    """Return the headers of a caller with that key."""
    return {"authorization": f"Bearer {secret}", **more}
