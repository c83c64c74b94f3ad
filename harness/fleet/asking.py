"""Asking a program over HTTP until it says what it should."""

import asyncio
from collections.abc import Callable

from forebay.testing.raw_client import RawClient, Reply
from harness.fleet.program import LOOK_S, START_S, Program, ProgramFailed

HOST = "127.0.0.1"
PATIENCE_S = 2.0


async def answers(
    port: int, path: str, program: Program, wanted: Callable[[Reply], bool] | None = None
) -> None:
    """Ask until the answer is 200, and as wanted; raises ProgramFailed when it never is."""
    seen = "no answer"
    try:
        async with asyncio.timeout(START_S):
            while True:
                try:
                    reply = await ask(port, path)
                    if reply.status == 200 and (wanted is None or wanted(reply)):
                        return
                    seen = f"{reply.status} {reply.body[:200]!r}"
                except (OSError, EOFError, AssertionError) as error:  # the last is its patience
                    seen = repr(error)
                if not program.running:
                    raise ProgramFailed(f"{program.name} ended: {program.last_words()}")
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise ProgramFailed(f"{program.name}, {path}: {seen}; {program.last_words()}") from None


async def ask(port: int, path: str) -> Reply:
    """Send one GET on a connection of its own, and return the answer."""
    async with await RawClient.connect(HOST, port) as client:
        client.timeout_s = PATIENCE_S
        await client.get(path)
        return await client.reply()
