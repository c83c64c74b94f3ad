"""The parent of several workers: it holds the listening sockets and the signals, and no request.

A worker that dies is started again, at once the first time and ever more slowly while it keeps
dying; until it is back the others accept its connections. One whose event loop does not turn any
more sends no heartbeats, and is killed. The workers live in sessions of their own, so that Ctrl-C
reaches the parent only. They are forked from the parent, which has imported what they need, while
its event loop is not running: so a worker is there in a tenth of the time that a new interpreter
takes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from forebay.cli.exits import DONE
from forebay.cli.serve.event_loop import on_stop_signals
from forebay.clock import LoopClock
from forebay.coordination.workers.group import WorkerGroup
from forebay.coordination.workers.messages import Accept, Ready, Reload, Stop
from forebay.gateway.workers.seat import Place

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from forebay.coordination.workers.group import WorkerConnection
    from forebay.coordination.workers.messages import FromWorker

logger = logging.getLogger("forebay.serve")

RESTART_S, RESTART_S_MAX = 0.1, 10.0
"""How long to wait before a worker that died soon is started again, at first and at most."""
STEADY_S: Final = 10.0
"""A worker that lived so long is started again at once, whatever was before."""
LOOK_S: Final = 0.5
"""How often the parent looks whether heartbeats have come."""
SILENT_LOOKS_MAX: Final = 10
"""A worker is killed at the next look without a heartbeat, after 5 s: it sends one every second.
Looks are counted, not time: while the parent is stopped, or the machine suspended, there are none.
"""
BASE_LENGTH_MAX: Final = 60
"""A Unix socket's whole path has at most 104 characters on some systems."""
LATE_S: Final = 10.0
"""How much longer than `server.shutdown_seconds` a worker may take to end."""


class WorkerProcess:
    """One worker as long as it lives."""

    def __init__(self, number: int, pid: int, connection: WorkerConnection) -> None:
        self.number = number
        self.pid = pid
        self.connection = connection
        self.is_ready = False
        self.silent_looks = 0
        """The parent's looks since the last heartbeat."""
        self.ended: asyncio.Future[int] = asyncio.Future()
        """Its exit status: below 0, a signal."""

    def reap(self) -> None:
        """Take note of its end, if it has ended."""
        if not self.ended.done():
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.ended.set_result(os.waitstatus_to_exitcode(status))

    def hangs(self) -> bool:
        """Count a look of the parent; say whether there were too many without a heartbeat."""
        self.silent_looks += 1
        return self.is_ready and self.silent_looks > SILENT_LOOKS_MAX

    def kill(self) -> None:
        self.silent_looks = 0  # it is not dead at once
        if not self.ended.done():  # until it is waited for, the id is its own
            os.kill(self.pid, signal.SIGKILL)


class Fork:
    """A worker that is to be forked by whoever runs the event loop, while it does not run."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._done: asyncio.Future[tuple[int, socket.socket]] = asyncio.Future()

    def finish(self, pid: int, sock: socket.socket) -> None:
        """Hand over the id of the process and the parent's end of its socket."""
        if not self._done.done():
            self._done.set_result((pid, sock))

    def fail(self, error: OSError) -> None:
        if not self._done.done():
            self._done.set_exception(error)

    async def wait(self) -> tuple[int, socket.socket]:
        """Return what `finish` was given. Raises OSError where there can be no more processes."""
        return await self._done


class Supervisor:
    """Starts the workers, and ends with them."""

    def __init__(
        self,
        sockets: Sequence[Sequence[socket.socket]],
        *,
        shutdown_s: float,
        is_fatal: bool,
    ) -> None:
        """`is_fatal` is whether all end when one worker fails, even after it was ready."""
        self._sockets = sockets
        self._shutdown_s = shutdown_s
        self._is_fatal = is_fatal
        self._directory = _private_directory()
        self._clock = LoopClock(asyncio.get_running_loop())
        self._group = WorkerGroup()
        self._workers: dict[int, WorkerProcess] = {}
        self._to_fork: asyncio.Queue[Fork | None] = asyncio.Queue()
        self._first_is_ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._status = DONE

    async def run(self) -> int:
        """Run until all workers have ended; return the exit status.

        Meanwhile somebody forks, outside of the event loop, what `next_fork` returns.
        """
        keepers = [
            asyncio.ensure_future(self._keep(number)) for number in range(len(self._sockets))
        ]
        watching = asyncio.ensure_future(self._watch())
        try:
            self._take_signals()
            await asyncio.gather(*keepers)
        finally:
            for task in (watching, *keepers):
                task.cancel()
            for worker in self._workers.values():
                worker.kill()
            self._group.close()
            shutil.rmtree(self._directory, ignore_errors=True)
            self._to_fork.put_nowait(None)
        return self._status

    async def next_fork(self) -> Fork | None:
        """Wait for a worker that is to be forked; None when there will be no more."""
        return await self._to_fork.get()

    # -- signals

    def _take_signals(self) -> None:
        """The first SIGTERM or SIGINT drains, the second stops at once; SIGHUP reloads."""
        loop = asyncio.get_running_loop()
        on_stop_signals(self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        loop.add_signal_handler(signal.SIGCHLD, self._reap)

    def _stop(self, at_once: bool) -> None:
        self._stopping.set()
        self._group.end_elections()
        for worker in self._workers.values():
            worker.connection.tell(Stop(at_once))

    def _reap(self) -> None:
        for worker in self._workers.values():
            worker.reap()

    def _reload(self) -> None:
        for worker in self._workers.values():
            worker.connection.tell(Reload())

    # -- the workers

    async def _keep(self, number: int) -> None:
        """Have one worker run until all are to stop."""
        if number:  # the first finds out what is wrong with the settings, and leads
            await self._unless_stopping(self._first_is_ready.wait())
        pause_s = 0.0
        while not self._stopping.is_set():
            started_s, pid = self._clock.monotonic_s(), None
            try:
                worker = await self._start(number)
            except OSError as error:
                reason = f"no process: {error.strerror}"
            else:
                status = await worker.ended
                reason, pid = _reason(status), worker.pid
                self._forget(worker)
                if self._stopping.is_set() or self._ends_all(status):
                    return
            if self._clock.monotonic_s() - started_s >= STEADY_S:
                pause_s = 0.0
            words = "worker %d ended (%s): starting it again in %g s"
            logger.error(words, number, reason, pause_s, extra={"pid": pid})
            await self._unless_stopping(asyncio.sleep(pause_s))
            pause_s = min(RESTART_S_MAX, 2.0 * pause_s or RESTART_S)

    async def _start(self, number: int) -> WorkerProcess:
        fork = Fork(Place(number, self._directory, self._sockets))
        self._to_fork.put_nowait(fork)
        pid, sock = await fork.wait()
        connection = await self._group.connect(sock, lambda message: self._hear(number, message))
        worker = self._workers[number] = WorkerProcess(number, pid, connection)
        worker.reap()  # its signal may have come before
        logger.info("worker %d started", number, extra={"pid": pid})
        if self._stopping.is_set():
            connection.tell(Stop())
        return worker

    def _hear(self, number: int, message: FromWorker) -> None:
        worker = self._workers.get(number)
        if worker is None:
            return
        worker.silent_looks = 0
        if isinstance(message, Ready):
            worker.is_ready = True
            self._first_is_ready.set()
            self._spread()

    def _forget(self, worker: WorkerProcess) -> None:
        del self._workers[worker.number]
        worker.connection.close()
        self._spread()

    def _spread(self) -> None:
        """Have the connections of every worker accepted: by itself, else by another one."""
        ready = [worker for worker in self._workers.values() if worker.is_ready]
        accepting: dict[int, list[int]] = {worker.number: [] for worker in ready}
        for number in range(len(self._sockets)):
            if number in accepting:
                accepting[number].append(number)
            elif ready:
                accepting[ready[number % len(ready)].number].append(number)
        for worker in ready:
            worker.connection.tell(Accept(tuple(accepting[worker.number])))

    def _ends_all(self, status: int) -> bool:
        """Stop all where a worker says that it cannot start at all: the next one could not."""
        if status <= 0 or (self._first_is_ready.is_set() and not self._is_fatal):
            return False
        self._status = status
        self._stop(True)
        return True

    # -- those that do not end, or do not live

    async def _watch(self) -> None:
        """Kill workers that hang; after the time to stop, all that are left."""
        while not self._stopping.is_set():
            await self._unless_stopping(asyncio.sleep(LOOK_S))
            for worker in self._workers.values():
                if worker.hangs():
                    logger.error("worker %d hangs: killing it", worker.number)
                    worker.kill()
        await asyncio.sleep(self._shutdown_s + LATE_S)
        for worker in self._workers.values():
            logger.error("worker %d does not stop: killing it", worker.number)
            worker.kill()

    async def _unless_stopping(self, wait: Any) -> None:
        """Wait, but not longer than until all are to stop."""
        waits = [asyncio.ensure_future(wait), asyncio.ensure_future(self._stopping.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()


def _private_directory() -> Path:
    """Return a new directory that only this user can enter, with a name that sockets can have."""
    base = tempfile.gettempdir()
    folder = base if len(base) <= BASE_LENGTH_MAX else "/tmp"
    return Path(tempfile.mkdtemp(prefix="forebay-", dir=folder))


def _reason(status: int) -> str:
    """Say how a process ended.

    >>> _reason(-9), _reason(1)
    ('SIGKILL', 'status 1')
    """
    return signal.Signals(-status).name if status < 0 else f"status {status}"
