"""A program of its own: started, listened to, signalled, and always ended, by its id."""

import asyncio
import ctypes
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from forebay.settings.environment import current_environment
from harness.preloaded import COMMAND, ForkedCommand

START_S = 30.0
"""Only turns a hang into a failure."""
STOP_S = 10.0
"""How long it may take to end when it is told to, before it is made to."""
LOOK_S = 0.02
"""How often we look at a program from outside."""

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


class ProgramFailed(Exception):
    """A program ended, or never said what it was to say; with the end of what it did say."""


def _end_with_parent() -> None:
    if _libc is not None:  # else whoever ends us with SIGKILL leaves the children behind
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def until(reached: Callable[[], bool], complaint: str, limit_s: float = START_S) -> None:
    """Look until it is so; raises ProgramFailed with the complaint when it never is."""
    try:
        async with asyncio.timeout(limit_s):
            while not reached():  # noqa: ASYNC110 - another program sets no event of ours
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise ProgramFailed(complaint) from None


class Program:
    """One program and its log, which outlives it; it can be started again as it was."""

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        folder: Path,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """`folder` is where it works and logs; settings of ours in the environment are left out."""
        self.name = name
        self.words = list(words)
        self.log = folder / f"{name}.log"
        self._folder = folder
        inherited = {
            key: value
            for key, value in current_environment().items()
            if not key.startswith("FOREBAY_")
        }
        self.variables = {**inherited, **(variables or {})}
        self._child: subprocess.Popen[bytes] | ForkedCommand | None = None
        self._from = 0

    @property
    def pid(self) -> int:
        """Its id; 0 when it does not run."""
        return self._child.pid if self._child is not None and self.running else 0

    @property
    def running(self) -> bool:
        """It was started and has not ended; true while frozen, too."""
        return self._child is not None and self._child.poll() is None

    @property
    def text(self) -> str:
        """What it has said since it was last started."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[self._from :].decode(errors="replace")

    def start(self) -> None:
        """Start it; what it says goes on at the end of its log."""
        assert not self.running, f"{self.name} runs already"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._from = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            if self.words[0] == COMMAND or self.words[0].endswith(".py"):
                self._child = ForkedCommand(
                    self.words[1:],
                    (output.fileno(), output.fileno()),
                    folder=self._folder,
                    variables=self.variables,
                    in_session=True,
                    script=self.words[0],
                )
                return
            self._child = subprocess.Popen(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=self.variables,
                start_new_session=True,  # a Ctrl-C at the terminal is for us, and we stop the rest
                preexec_fn=_end_with_parent,
            )

    async def says(self, what: str, limit_s: float = START_S) -> None:
        """Wait until it has said this since its start; raises ProgramFailed when it ends before."""

        def said() -> bool:
            if what in self.text:
                return True
            if not self.running:
                raise ProgramFailed(f"{self.name} ended: {self.last_words()}")
            return False

        await until(said, f"{self.name} never said {what!r}: {self.last_words()}", limit_s)

    def last_words(self) -> str:
        """Return the end of what it said."""
        return self.text[-2000:].strip() or "it said nothing"

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self._child is not None and self.running:
            self._child.send_signal(number)

    def freeze(self) -> None:
        """Stop it where it is (SIGSTOP): it holds its sockets and does nothing."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen one go on."""
        self.signal(signal.SIGCONT)

    async def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self.signal(signal.SIGKILL)
        await self.ended()

    async def ended(self, limit_s: float = STOP_S) -> int:
        """Wait for its end and return its exit status."""
        await until(lambda: not self.running, f"{self.name} goes on for ever", limit_s)
        return (self._child.returncode or 0) if self._child is not None else 0

    async def stop(self, limit_s: float = STOP_S) -> None:
        """Ask it to end, and make it end if it does not; nothing if it does not run."""
        if not self.running:
            return
        self.thaw()
        self.signal(signal.SIGTERM)
        try:
            await self.ended(limit_s)
        except ProgramFailed:
            await self.kill()
