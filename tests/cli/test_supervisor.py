"""The parent of the workers, where the system has no more processes to give."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from forebay.cli.serve.arguments import ServeArguments
from forebay.cli.serve.parent import _fork
from forebay.cli.serve.supervisor import SILENT_LOOKS_MAX, Fork, Supervisor, WorkerProcess
from forebay.gateway.workers.seat import Place

if TYPE_CHECKING:
    from forebay.coordination.workers.group import WorkerConnection

PLACE = Place(0, Path(), [[]])
ARGUMENTS = ServeArguments(None, [], {}, None, self_check=False)


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def test_a_worker_that_cannot_be_forked_is_tried_again() -> None:
    """In a process of its own: it takes SIGCHLD, by which uvloop hears of the tests' programs."""
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "worker 0 ended (no process: Resource temporarily unavailable)" in done.stderr


async def fail_to_fork() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        supervisor = Supervisor([[listening]], shutdown_s=1.0, is_fatal=False)
        running = asyncio.ensure_future(supervisor.run())
        for _ in range(2):
            fork = await supervisor.next_fork()
            assert fork is not None
            fork.fail(OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
        os.kill(os.getpid(), signal.SIGTERM)
        while (fork := await supervisor.next_fork()) is not None:
            fork.fail(OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
        assert await running == 0


async def test_a_fork_that_fails_leaves_no_descriptor_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refuse)
    connected: list[socket.socket] = []
    before = open_descriptors()
    for _ in range(3):
        fork = Fork(PLACE)
        _fork(fork, connected, ARGUMENTS)
        with pytest.raises(BlockingIOError):
            await fork.wait()
    assert (open_descriptors(), connected) == (before, [])


async def test_a_worker_waits_where_there_are_no_more_descriptors() -> None:
    fork = Fork(PLACE)
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
    try:
        _fork(fork, [], ARGUMENTS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))
    with pytest.raises(OSError, match="Too many open files"):
        await fork.wait()


async def test_a_worker_hangs_after_ten_looks_of_the_parent_without_a_heartbeat() -> None:
    worker = WorkerProcess(0, 1, cast("WorkerConnection", None))
    assert not any(worker.hangs() for _ in range(100)), "it may take its time to start"
    worker.is_ready = True
    for _ in range(3):
        worker.silent_looks = 0  # a heartbeat
        assert not any(worker.hangs() for _ in range(SILENT_LOOKS_MAX))
    assert worker.hangs()


if __name__ == "__main__":
    logging.basicConfig()
    asyncio.run(fail_to_fork())
