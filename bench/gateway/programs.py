"""Programs on a core of their own: start, watch, end by their own ids."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

GATEWAY_CORE = 0
LOAD_CORE = 1  # the load and the node share it
_SCHEDULER_CLOCK = 2  # of clock_getcpuclockid: nanoseconds, all threads; /proc/PID/stat has ticks


class WillNotStart(Exception):
    """A gateway did not install, start or answer; the text says why."""


def free_port() -> int:
    """Return a loopback port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def pinned(core: int, command: Sequence[str]) -> list[str]:
    return ["taskset", "-c", str(core), *command]


def _stat(pid: int) -> tuple[int, int] | None:
    """Return parent and start time, or None for what has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), int(fields[19])


def _parents() -> dict[int, int]:
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return {pid: stat[0] for pid in pids if (stat := _stat(pid))}


class Program:
    """One program on one core, its output in a file; ended by its id and its children's."""

    def __init__(
        self,
        core: int,
        command: Sequence[str],
        log: Path,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        with log.open("wb") as output:
            self._child = subprocess.Popen(
                pinned(core, command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                env={**os.environ, **(variables or {})},
            )

    def pids(self) -> list[int]:
        """Return the program's own id and those of its descendants."""
        parents = _parents()
        found = [self._child.pid]
        for pid in found:  # grows while it is walked
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def cpu_s(self) -> float:
        """Return the CPU seconds used so far, by all threads and children."""
        total = 0.0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                total += time.clock_gettime((~pid << 3) | _SCHEDULER_CLOCK)
        return total

    def rss_mib(self) -> float:
        """Return the resident memory, children included."""
        pages = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def last_words(self) -> str:
        """Return the last line that it printed, for a report."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines()]
        words = [line for line in lines if any(letter.isalpha() for letter in line)]
        return words[-1][:160] if words else "it said nothing"

    def ended(self) -> int | None:
        return self._child.poll()

    def stop(self) -> None:
        """End it and its descendants: politely, then not."""
        started = {pid: stat[1] for pid in self.pids() if (stat := _stat(pid))}
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid, start in started.items():
                stat = _stat(pid)
                if stat and stat[1] == start:  # the same one still, not a number used again
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(2)


def ask(port: int, request: bytes, timeout_s: float = 5.0) -> tuple[int, bytes]:
    """Send one request on a connection of its own; return status and body."""
    with socket.create_connection(("127.0.0.1", port), timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(request)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, answer.read()


def wait_for_answer(program: Program, port: int, request: bytes, seconds: float) -> None:
    """Return once `request` is answered 200; raise WillNotStart if it never is."""
    seen = "no answer"
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if program.ended() is not None:
            raise WillNotStart(f"ended with {program.ended()}: {program.last_words()}")
        try:
            status, body = ask(port, request)
        except (OSError, http.client.HTTPException) as error:
            seen = repr(error)
        else:
            if status == 200:
                return
            seen = f"HTTP {status} {body[:100]!r}"
        time.sleep(0.1)
    raise WillNotStart(f"no answer within {seconds:.0f} s: {seen}; {program.last_words()}")


def run_load(load: Path, *words: object, timeout_s: float) -> dict[str, float]:
    """Run the load program to its end; return the figures that it prints, none if it fails."""
    command = pinned(LOAD_CORE, [str(load), *map(str, words)])
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=True
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):  # nobody there, or stuck
        return {}
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
