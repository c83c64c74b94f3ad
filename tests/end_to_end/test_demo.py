"""The demo as a command: it ends when it is told to, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from forebay.cli.serve import demo

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Shell


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_the_demo_and_its_files_are_gone(
    shell: Shell, tmp_path: Path, number: signal.Signals
) -> None:
    words = ("demo", "--port", "0", "--pace", "0.1")
    playing = await shell.start(*words, TMPDIR=str(tmp_path))
    await playing.says("A greedy script")
    assert os.listdir(tmp_path)
    playing.signal(number)
    assert await playing.ends() == 0
    assert os.listdir(tmp_path) == []
    assert "Traceback" not in playing.text
    assert "forebay serve" in playing.text.replace("\n", " ")


def test_where_the_usual_port_is_taken_the_demo_takes_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(demo, "USUAL_PORT", taken.getsockname()[1])
        assert demo._free_port() == 0
    assert demo._free_port() == demo.USUAL_PORT
