"""Starting and ending a leader that is a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCHEDULER_CLOCK = 2  # of clock_getcpuclockid: nanoseconds, all threads


class LeaderProcess:
    """The leader."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child

    def cpu_s(self) -> float:
        """Return the CPU seconds that it has used."""
        return time.clock_gettime((~self._child.pid << 3) | _SCHEDULER_CLOCK)

    def kill(self) -> None:
        """End it as a crash would."""
        self._child.kill()

    def resign(self) -> None:
        """Have it leave as a gateway does that is told to stop."""
        self._child.terminate()


@contextmanager
def leader_process(url: str, lease_s: float) -> Iterator[LeaderProcess]:
    """Run a leader beside this process; yields when it leads."""
    words = [sys.executable, "-m", "bench.fleet.leader_process", url, str(lease_s)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            if child.stdout.readline() != "leads\n":
                raise SystemExit("the leader did not start")
            yield LeaderProcess(child)
        finally:
            child.kill()
