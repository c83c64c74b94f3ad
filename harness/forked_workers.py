"""Runs tests in forked workers, which have them from their parent: collected once, for all.

A worker takes one group of tests after the other and tells the parent what came of each test; for
the rest it is a pytest like any other, with fixtures, captured output and an end of its own.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Pipe, wait
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

Groups: TypeAlias = "Sequence[Sequence[pytest.Item]]"
NUMBER_BYTES = 2
OF_THE_PARENT = ("terminalreporter", "lfplugin", "nfplugin")
"""Plugins that print what came of all tests, and note it for the next run."""


def run_in_workers(session: pytest.Session, groups: Groups, count: int) -> bool:
    """Run groups of tests in so many workers; for `pytest_runtestloop`.

    In the parent it returns when all have run; in a worker, when no group is left for it.
    """
    numbers = _queue_of(len(groups))
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # of all workers
    workers = []
    for index in range(count):
        ours, theirs = Pipe(duplex=False)
        pid = os.fork()
        if not pid:
            _become_worker(session.config, index, theirs)
            _run(groups, numbers)
            theirs.send(None)
            return True
        theirs.close()
        workers.append(Worker(pid, ours))
    os.close(numbers)
    try:
        _hear(session, workers)
    except BaseException:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGINT)  # as at a Ctrl-C: with all that it started
        raise
    finally:
        ends = [os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1]) for worker in workers]
    for worker, end in zip(workers, ends, strict=True):
        if end != worker.expected_end:
            status = pytest.ExitCode.INTERNAL_ERROR
            pytest.exit(f"a worker ended with {end}; the last that it ran: {worker.ran}", status)
    return True


@dataclass(slots=True, eq=False)
class Worker:
    """What the parent knows of a worker."""

    pid: int
    channel: Connection
    ran: str = "none"
    """The test that it began last."""
    expected_end: int = pytest.ExitCode.OK

    def hear(self, config: pytest.Config) -> bool:
        """Take one message; return False if it was the last."""
        try:
            told = self.channel.recv()
        except EOFError:
            return False
        if isinstance(told, str):
            self.ran = told
        elif told is not None:
            report = config.hook.pytest_report_from_serializable(config=config, data=told)
            if report.failed:
                self.expected_end = pytest.ExitCode.TESTS_FAILED
            config.hook.pytest_runtest_logreport(report=report)
        return told is not None


def _queue_of(count: int) -> int:
    """Return a pipe with the numbers up to this one: who reads one has taken it."""
    reader, writer = os.pipe()
    os.write(writer, b"".join(n.to_bytes(NUMBER_BYTES) for n in range(count)))
    os.close(writer)
    return reader


def _hear(session: pytest.Session, workers: list[Worker]) -> None:
    """Take what workers report until each of them has ended."""
    talking: dict[object, Worker] = {worker.channel: worker for worker in workers}
    while talking:
        for channel in wait([worker.channel for worker in talking.values()]):
            if not talking[channel].hear(session.config):
                del talking[channel]
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)


# -- in a worker


class Teller:
    """Tells the parent which test begins and what came of it."""

    def __init__(self, config: pytest.Config, parent: Connection) -> None:
        self._config = config
        self._parent = parent

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._parent.send(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            hook = self._config.hook
            self._parent.send(
                hook.pytest_report_to_serializable(config=self._config, report=report)
            )


def _become_worker(config: pytest.Config, index: int, parent: Connection) -> None:
    """Give up what is the parent's, and get files of its own for what tests write."""
    plugins = config.pluginmanager
    for name in OF_THE_PARENT:
        plugins.unregister(name=name)
    plugins.register(Teller(config, parent))
    capture: Any = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / f"worker-{index}"
    factory._basetemp.mkdir()


def _run(groups: Groups, numbers: int) -> None:
    items = _taken(groups, numbers)
    item = next(items, None)
    while item is not None:
        following = next(items, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item = following


def _taken(groups: Groups, numbers: int) -> Iterator[pytest.Item]:
    while number := os.read(numbers, NUMBER_BYTES):
        yield from groups[int.from_bytes(number)]
