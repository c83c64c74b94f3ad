"""A standard stream that nobody reads: the gateway goes on, drops lines, and counts them."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from .conftest import listening_port
from .worker_rig import Workers

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Shell

TALKATIVE = """
import logging, sys
from forebay.cli.main import main
from forebay.gateway.readiness import Readiness
problem = Readiness.problem
def talk(self):
    for _ in range(1000):
        logging.getLogger("talk").warning("nobody reads this: " + 200 * "x")
        print("nor this: " + 200 * "x")
    return problem(self)
Readiness.problem = talk
sys.exit(main())
"""
"""Each request for /ready, and each picture of the page, is a thousand lines on either stream."""


@pytest.mark.parametrize(("unread", "workers"), [("stderr", 1), ("stdout", 2)])
async def test_output_that_nobody_reads_holds_up_no_request_and_is_counted(
    shell: Shell, tmp_path: Path, unread: str, workers: int
) -> None:
    script = tmp_path / "talkative.py"
    script.write_text(TALKATIVE)
    words = ("serve", "--port", "0", "--simulate", "--set", f"server.workers={workers}")
    gateway = await shell.start(*words, cwd=tmp_path, script=script)
    port = await listening_port(gateway)
    gateway.read(unread, False)
    dropped = 0.0
    while dropped < 10_000:
        await shell.get(port, "/ready")
        metrics = await Workers(shell, gateway, port).metrics()
        dropped = metrics["forebay_log_lines_dropped_total"]
    if unread == "stderr":
        gateway.read(unread, True)
        await shell.get(port, "/ready")
        await gateway.says('"lines_dropped":')
    gateway.signal(signal.SIGTERM)
    await gateway.ended()
    if unread == "stdout":
        gateway.read(unread, True)
    assert await gateway.ends() == 0
