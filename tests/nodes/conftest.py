"""The real servers of these tests: llama.cpp with a tiny model, and the simulated node."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.tiny_model import write_tiny_model

LLAMA_ALIAS = "tiny"
LLAMA_SLOTS = 3


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="session")
def llama_url(tiny_gguf: Path) -> Iterator[str]:
    """A real llama.cpp server, for the whole session."""
    flags = ["--gguf", str(tiny_gguf), "--alias", LLAMA_ALIAS, "--slots", str(LLAMA_SLOTS)]
    child = subprocess.Popen(
        [sys.executable, "-m", "forebay.nodes.embedded.llama_child", *flags, "--context", "512"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with child:
        assert child.stdout is not None
        word, _, url = child.stdout.readline().partition(" ")
        assert word == "ready"
        yield url.strip()
        assert child.stdin is not None
        child.stdin.close()
        child.wait(30)
