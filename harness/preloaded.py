"""`forebay` commands as processes of their own, forked from one that has imported everything.

Importing a gateway takes 0.6 s of CPU, and the tests start hundreds of them. The process that forks
them is multiprocessing's fork server: it has one thread, starts with the first command and ends
with this process. Small programs of the tests that use the package can be started the same way.
What depends on how an interpreter starts or ends is for `subprocess`: no `atexit` is run here.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import multiprocessing
import os
import pty
import runpy
import signal
import subprocess
import sys
import termios
from contextlib import suppress
from multiprocessing import connection, forkserver
from multiprocessing.reduction import DupFd
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from forebay.settings.environment import current_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COMMAND = str(Path(sys.executable).parent / "forebay")
IMPORTED = [
    "forebay.cli.main",
    "forebay.cli.serve.command",
    "forebay.cli.serve.guard",
    "forebay.cli.serve.parent",
    "forebay.cli.serve.server",
    "forebay.cli.serve.sim_node",
    "uvloop",
    # What a gateway imports once it needs it, which takes as long as all of the above:
    "forebay.coordination.store.valkey",
    "forebay.gateway.jobs.engine",
    "forebay.records.store",
    "forebay.sessions.ledger",
    "psycopg",
    "uvicorn.protocols.http.auto",
    # What commands that ask a gateway import, and programs of the tests:
    "forebay.cli.status",
    "forebay.testing",
    "harness.frozen",
]
LIMIT_S = 60.0
"""Only turns a hang into a failure."""
LINE_BYTES_MAX = 2**20
"""Of what a command says: a line of a log may hold a traceback."""
PR_SET_PDEATHSIG = 1

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(IMPORTED)


class ForkedCommand:
    """A `forebay` command that runs; as `subprocess.Popen`, without its pipes."""

    def __init__(
        self,
        words: Sequence[str],
        streams: Sequence[int],
        *,
        folder: Path | None = None,
        variables: Mapping[str, str] | None = None,
        in_session: bool = False,
        script: Path | str = COMMAND,
    ) -> None:
        """Start it; the descriptors become its standard output, error and, with a third, input.

        `in_session` gives it a session of its own: Ctrl-C does not reach it, unless it is typed at
        a terminal that is its input, for that is then the session's. `script` is a Python
        program to run instead of `forebay`: a file, or the name of a module.
        """
        environ = dict(current_environment() if variables is None else variables)
        arguments = [str(script), *words], str(folder or Path.cwd()), environ, in_session
        self._process = _context.Process(target=_run, args=(*arguments, _Descriptors(streams)))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.sentinel = self._process.sentinel
        """A descriptor that can be read once the process has ended."""

    @property
    def returncode(self) -> int | None:
        """The exit status, less than 0 for a signal; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and we have not heard of it yet
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def ends(self, limit_s: float = LIMIT_S) -> int:
        """Wait for its end; return its exit status, or raise `TimeoutExpired`."""
        if not connection.wait([self.sentinel], limit_s):
            raise subprocess.TimeoutExpired("a forked command", limit_s)
        self._process.join()
        assert self.returncode is not None
        return self.returncode


def run_command(
    *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a `forebay` command to its end; as `subprocess.run`, its output captured as text."""
    with TemporaryFile() as said, TemporaryFile() as complained:
        files = (said, complained)
        command = ForkedCommand(words, [file.fileno() for file in files], folder=cwd, variables=env)
        try:
            status = command.ends()
        finally:
            command.kill()
        for file in files:
            file.seek(0)
        texts = [file.read().decode() for file in files]
    return subprocess.CompletedProcess([COMMAND, *words], status, *texts)


def run_on_terminal(*words: str, env: Mapping[str, str]) -> tuple[int, str]:
    """Run a `forebay` command on a terminal; return its exit status and all that it wrote there."""
    ours, theirs = pty.openpty()
    try:
        command = ForkedCommand(words, (theirs, theirs, theirs), variables=env)
    finally:
        os.close(theirs)
    with os.fdopen(ours, "rb", 0) as terminal:
        said = b""
        with suppress(OSError):  # how Linux says that nobody holds the other end any more
            while piece := terminal.read(65_536):
                said += piece
    return command.ends(), said.decode()


class PipedProgram(ForkedCommand):
    """A Python program with pipes to it and from it; as `subprocess.Popen`, in text."""

    def __init__(self, script: Path | str, *words: str) -> None:
        (theirs_in, ours_in), (ours_out, theirs_out) = os.pipe(), os.pipe()
        try:
            super().__init__(words, (theirs_out, 2, theirs_in), script=script)
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self.stdin, self.stdout = os.fdopen(ours_in, "w"), os.fdopen(ours_out)

    def communicate(self, text: str = "", limit_s: float = LIMIT_S) -> str:
        """Say this, wait for its end, and return what it has said since: little, a pipe full."""
        with self.stdin, self.stdout:
            if text:
                self.stdin.write(text)
            self.stdin.close()
            self.ends(limit_s)
            return self.stdout.read()


class HeardCommand(ForkedCommand):
    """One whose output is read here; as `asyncio.subprocess.Process`."""

    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    _ended: asyncio.Event

    @classmethod
    async def start(
        cls,
        *words: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        script: Path | str = COMMAND,
    ) -> HeardCommand:
        ends = [os.pipe(), os.pipe()]
        streams = ends[0][1], ends[1][1]
        try:
            command = cls(words, streams, folder=cwd, variables=env, script=script)
        finally:
            for _, theirs in ends:
                os.close(theirs)
        command.stdout, command.stderr = [await _reader(ours) for ours, _ in ends]
        command._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(command.sentinel, command._end)
        return command

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self.sentinel)
        self._process.join()
        self._ended.set()

    async def wait(self) -> int:
        """Wait for its end; return its exit status."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    async def communicate(self) -> tuple[bytes, bytes]:
        """Wait for its end; return what it has said since."""
        said, complained, _ = await asyncio.gather(
            self.stdout.read(), self.stderr.read(), self.wait()
        )
        return said, complained


class _ClosedAtTheEnd(asyncio.StreamReaderProtocol):
    def eof_received(self) -> bool:
        super().eof_received()
        return False


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: _ClosedAtTheEnd(reader), os.fdopen(descriptor, "rb", 0)
    )
    return reader


class _Descriptors:
    """Descriptors on their way to another process: valid there once they have been unpickled."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = numbers

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, tuple(DupFd(number) for number in self._numbers)


def _received(*descriptors: Any) -> list[int]:
    return [each.detach() for each in descriptors]


def _end_with_the_fork_server() -> None:
    """Have this command killed when the fork server ends, which it does with its user.

    It ends when nobody has a certain pipe open any more, and every command is given that, too.
    """
    alive = forkserver._forkserver._forkserver_alive_fd  # type: ignore[attr-defined]
    os.close(alive)
    if sys.platform == "linux":  # else whoever ends us with SIGKILL leaves the commands behind
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:  # it ended before it could be watched
            os._exit(1)


def _run(
    words: list[str], folder: str, environ: dict[str, str], in_session: bool, streams: list[int]
) -> None:
    """Run the command in the process that was forked for it."""
    from forebay.cli.main import main

    _end_with_the_fork_server()
    if in_session:
        os.setsid()
    for theirs, number in zip(streams, (1, 2, 0), strict=False):  # mostly without the input
        os.dup2(theirs, number)
        os.close(theirs)
    if len(streams) == 3:
        sys.stdin = os.fdopen(0)
        if os.isatty(0):  # what the fork server has opened has been no terminal
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", 1)
            if in_session:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(folder)
    os.environ.clear()  # noqa: TID251 - the child's
    os.environ.update(environ)  # noqa: TID251
    sys.argv = words
    if words[0] == COMMAND:
        main()
    elif words[0].endswith(".py"):
        runpy.run_path(words[0], run_name="__main__")
    else:
        runpy.run_module(words[0], run_name="__main__")
