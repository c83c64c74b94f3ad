"""What the processes that are forked must not do to each other."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from forebay.nodes.sim.engine import SimOptions
from harness.preloaded import COMMAND

from .conftest import listening_port
from .worker_rig import Workers

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Command, Shell

FAST = SimOptions(models=("m",), slots=8, ttft_s=0.0, tokens_per_second=0.0)
PROGRAM = """
import os, signal, sys
from forebay.cli.main import main

parent = os.getpid()

def have_child():
    if os.fork() == 0:
        print("child", os.getpid(), flush=True)
        signal.pause()

def lose_reader():
    ours, theirs = os.pipe()
    os.dup2(theirs, sys.stdout.fileno())
    os.close(ours)
    sys.stdout.write("not read any more")

def forked():
    if os.getppid() == parent:
        {deed}

os.register_at_fork(after_in_child=forked)
main()
"""


async def serve(shell: Shell, folder: Path, deed: str, *, anew: bool = False) -> Command:
    """Start a gateway with two workers that do something as soon as they have been forked.

    `anew`: in an interpreter that begins and ends as usual.
    """
    program = folder / "program.py"
    program.write_text(PROGRAM.format(deed=deed))
    node = await shell.sim_node(FAST)
    words = ("serve", "--port", "0", "--set", "server.workers=2", "--node", node)
    if anew:
        return await shell.start_program(sys.executable, str(program), *words)
    return await shell.start(*words, script=program)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_that_a_new_worker_gets_does_not_stop_them_all(
    shell: Shell, tmp_path: Path, number: signal.Signals
) -> None:
    gateway = await serve(shell, tmp_path, f"os.kill(os.getpid(), {int(number)})")
    await Workers(shell, gateway, await listening_port(gateway)).all_there()
    gateway.signal(signal.SIGTERM)
    assert await gateway.ends() == 0


async def test_a_worker_whose_own_child_lives_on_is_replaced(shell: Shell, tmp_path: Path) -> None:
    deed = "signal.signal(signal.SIGUSR1, lambda *_: have_child())"
    gateway = await serve(shell, tmp_path, deed)
    workers = Workers(shell, gateway, await listening_port(gateway))
    await workers.all_there()
    os.kill(workers.pid(1), signal.SIGUSR1)
    child = int((await gateway.says("child ")).split()[-1])
    try:
        workers.kill(1)
        await gateway.says("worker 1 ended (SIGKILL): starting it again in 0 s")
        await workers.all_there()
    finally:
        os.kill(child, signal.SIGKILL)


async def test_the_parent_of_many_workers_takes_as_many_descriptors_as_it_may(
    shell: Shell,
) -> None:
    words = f'ulimit -Sn 40; exec "{COMMAND}" serve --port 0 --simulate --set server.workers=8'
    gateway = await shell.start_program("bash", "-c", words)
    await gateway.says('"worker 7 started"')
    gateway.signal(signal.SIGTERM)
    assert await gateway.ends() == 0
    assert "Too many open files" not in gateway.text


async def test_a_worker_that_cannot_write_its_last_lines_ends_alone(
    shell: Shell, tmp_path: Path
) -> None:
    gateway = await serve(shell, tmp_path, "lose_reader()", anew=True)
    await Workers(shell, gateway, await listening_port(gateway)).all_there()
    gateway.signal(signal.SIGTERM)
    assert await gateway.ends() == 0
