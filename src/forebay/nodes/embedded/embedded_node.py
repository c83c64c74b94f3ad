"""The embedded node: llama.cpp's own server in a child process, for those who have no node yet."""

import asyncio
import contextlib
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from forebay.errors import BackendFailed

logger = logging.getLogger("forebay.nodes")

SLOTS = 2
"""Few enough that four messages at once show a line, and a small CPU is not stretched further."""
CONTEXT_TOKENS = 2048
"""Per slot; the default model keeps 23 kB for each, so some 47 MB a slot."""
START_LIMIT_S = 120.0
"""A large GGUF on a slow disk takes a minute to read."""
STOP_LIMIT_S = 5.0
RESTART_S, RESTART_S_MAX = 0.5, 60.0
"""How long to wait before a child that died is started again, at first and at most."""
TAIL_BYTES_MAX = 8192
"""How much of its output is kept for error messages."""


class EmbeddedOptions(Struct, frozen=True):
    """What the child is started with."""

    gguf: Path
    model: str
    """The name that requests use."""
    slots: int = SLOTS
    context_tokens: int = CONTEXT_TOKENS
    threads: int = 0
    """0 lets the child choose by the CPUs there are."""
    embedding: bool = False


class EmbeddedNode:
    """One llama.cpp server of our own. `start` and `stop` may be called twice, and in turn."""

    def __init__(self, options: EmbeddedOptions) -> None:
        self._options = options
        self._child: Process | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._tail = bytearray()
        self._ready = asyncio.Event()
        self._line = bytearray()
        self.url = ""
        """Where it listens; "" while it does not run."""

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.returncode is None

    @property
    def tail(self) -> str:
        """Return the last that it wrote, for people to read."""
        return self._tail.decode(errors="replace")

    async def start(self, limit_s: float = START_LIMIT_S) -> None:
        """Start it and wait until it is ready.

        Raises `BackendFailed` with the end of its output when it ends instead, or is not ready in
        time. Cancelling stops the child.
        """
        if self.is_running:
            return
        await self.stop()
        self._tail.clear()
        self._line.clear()
        self._ready.clear()
        # In a session of its own: Ctrl-C is for the gateway, which still lets its requests finish.
        self._child = await asyncio.create_subprocess_exec(
            *self._command(), stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        try:
            await self._wait_until_ready(self._child, limit_s)
        except BaseException:
            await self.stop()
            raise

    async def keep_running(self, restarted: Callable[[], None]) -> None:
        """Start it again whenever it dies, and say so; runs until it is cancelled.

        One that dies at once, or does not start, is tried again ever more slowly.
        """
        pause_s = RESTART_S
        while self._child is not None:
            await self._child.wait()
            logger.warning("the embedded model exited", extra={"output": self.tail[-500:]})
            while not self.is_running:
                await asyncio.sleep(pause_s)
                pause_s = min(2.0 * pause_s, RESTART_S_MAX)
                with contextlib.suppress(BackendFailed):  # its reason is in the log above
                    await self.start()
            restarted()

    async def stop(self) -> None:
        """End the child; returns when it is gone."""
        child, self._child = self._child, None
        self.url = ""
        if child is None:
            return
        assert child.stdin is not None
        child.stdin.close()
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await child.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
        await asyncio.gather(*self._readers)
        self._readers = []

    def _command(self) -> list[str]:
        options = self._options
        settings = {
            "gguf": options.gguf,
            "alias": options.model,
            "slots": options.slots,
            "context": options.context_tokens,
            "threads": options.threads,
        }
        flags = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
        flags += ["--embedding"] if options.embedding else []
        return [sys.executable, "-m", "forebay.nodes.embedded.llama_child", *flags]

    async def _wait_until_ready(self, child: Process, limit_s: float) -> None:
        assert child.stdout is not None
        assert child.stderr is not None
        self._readers = [
            asyncio.create_task(self._read_answers(child.stdout)),
            asyncio.create_task(self._read_log(child.stderr)),
        ]
        try:
            async with asyncio.timeout(limit_s):
                await self._ready.wait()
        except TimeoutError:
            raise self._failure(f"was not ready within {limit_s:g} s") from None
        if not self.url:
            await asyncio.gather(*self._readers)
            raise self._failure("ended before it was ready")

    async def _read_answers(self, stdout: asyncio.StreamReader) -> None:
        """Read the line that says where it listens; at the end of output nothing more comes."""
        while chunk := await stdout.read(4096):
            if not self.url:
                self._line = (self._line + chunk)[-TAIL_BYTES_MAX:]
                text = self._line.decode(errors="replace")
                for line in text.splitlines(keepends=True):
                    if line.startswith("ready ") and line.endswith("\n"):
                        self.url = line.split()[1]
                        self._ready.set()
        self._ready.set()

    async def _read_log(self, stderr: asyncio.StreamReader) -> None:
        """Keep reading for as long as it lives, or it would block on a full pipe."""
        while chunk := await stderr.read(4096):
            self._tail += chunk
            del self._tail[:-TAIL_BYTES_MAX]

    def _failure(self, what: str) -> BackendFailed:
        last = "\n".join(self.tail.splitlines()[-10:])
        return BackendFailed(f"the embedded llama.cpp server {what}. Its last output:\n{last}")
