"""`forebay node` as a process of its own."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from harness.preloaded import HeardCommand

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIMIT_S = 30.0  # only turns a hang into a failure


@asynccontextmanager
async def guard(*options: str, **environ: str) -> AsyncIterator[tuple[HeardCommand, str]]:
    """Run the command on a free port; yields the child and its URL."""
    inherited = dict(os.environ)  # noqa: TID251 - a child's
    child = await HeardCommand.start("node", "--port", "0", *options, env=inherited | environ)
    try:
        async with asyncio.timeout(LIMIT_S):
            url = await _where(child.stderr)
        yield child, url
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        await child.communicate()


async def _where(said: asyncio.StreamReader) -> str:
    while line := (await said.readline()).decode():
        if line.startswith("Forebay guards"):
            return next(word for word in line.split()[3:] if word.startswith("http://"))
    raise AssertionError("it did not start")


async def ended(child: HeardCommand) -> int:
    """Wait for the end of the child; return its exit status."""
    async with asyncio.timeout(LIMIT_S):
        await child.communicate()
    assert child.returncode is not None
    return child.returncode
