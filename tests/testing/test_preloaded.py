"""The commands that tests fork: none outlives whoever started it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import signal
from harness.preloaded import ForkedCommand

command = ForkedCommand(["sim-node", "--port", "0"], (1, 2), in_session={in_session})
signal.pause()
"""


@pytest.mark.parametrize("in_session", [True, False])
def test_a_command_ends_with_a_program_that_is_killed(in_session: bool) -> None:
    words = [sys.executable, "-c", PROGRAM.format(in_session=in_session)]
    output = subprocess.PIPE
    with subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, text=True) as program:
        assert program.stdout is not None
        assert "simulated node on " in program.stdout.readline()
        program.kill()
        program.communicate(timeout=30)  # until nobody has its output open any more
