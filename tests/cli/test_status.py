"""`forebay status`: one look at a gateway that runs, or a way out where none does."""

from __future__ import annotations

import asyncio
import io
import json
import re
import socket
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from forebay.api.nodes import Node
from forebay.cli.main import app
from forebay.cli.output.tables import node_table, show
from forebay.settings import digest_of
from forebay.testing import FakeNode, RawClient
from harness.shown_fleet import ME, ShownFleet, replica

from .test_every_command import on_a_terminal

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Desk

KEYS = [
    {"name": "chief", "key_sha256": digest_of("chief-secret"), "admin": True},
    {"name": "team", "key_sha256": digest_of("team-secret")},
]


async def test_a_gateway_that_is_ready_is_shown_with_its_queue_nodes_and_models(
    desk: Desk,
) -> None:
    node = await desk.node(models=("mistral", "llama"), slots=1)
    gateway = await desk.start(node)
    async with await RawClient.connect("127.0.0.1", gateway.port) as client:
        await client.post("/v1/chat/completions", {"model": "llama", "messages": []})
        call = await node.next_call()
        done = await desk.run("status")
        await call.answer({})
    assert done.exit_code == 0, done.output
    assert "is ready" in done.stdout
    assert "0 of 100" in done.stdout  # waiting
    assert "1 of 1" in done.stdout  # running on the node
    assert "online" in done.stdout
    assert "Models: llama, mistral" in done.stdout


async def test_a_gateway_without_a_node_is_not_ready_and_says_why(desk: Desk) -> None:
    await desk.start()
    done = await desk.run("status")
    assert done.exit_code == 1
    assert "NOT ready: no node is up" in done.stdout
    assert "forebay nodes add URL" in done.stdout


async def test_a_gateway_whose_nodes_all_drain_says_that(desk: Desk) -> None:
    await desk.start(await desk.node(), await desk.node())
    for name in ("n1", "n2"):
        assert (await desk.run("nodes", "drain", name)).exit_code == 0
    done = await desk.run("status")
    assert done.exit_code == 1
    assert "NOT ready: every node is draining" in done.stdout


async def test_an_address_needs_no_scheme_and_what_was_not_measured_is_a_dash(desk: Desk) -> None:
    gateway = await desk.start(await desk.node())
    done = await desk.run("status", url=f"127.0.0.1:{gateway.port}")
    assert done.exit_code == 0, done.output
    assert re.search(r"0 of 100 +0 +- +- +0", done.stdout), done.stdout
    assert "0.0 s" not in done.stdout


def test_a_table_that_does_not_fit_the_terminal_is_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(
        "embedded",
        url="http://127.0.0.1:40001",
        kind="llama-cpp",
        state="online",
        slots=2,
        models=["smollm2-135m-instruct"],
    )
    written = {}
    for width in ("80", "120"):
        output = io.StringIO()
        output.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stdout", output)
        monkeypatch.setenv("COLUMNS", width)
        monkeypatch.setenv("NO_COLOR", "1")
        show(node_table([node]))
        written[width] = re.sub(r"\x1b\[\d*m", "", output.getvalue())
    assert re.search("^Models +smollm2-135m-instruct$", written["80"], re.M), written["80"]
    assert re.search("^ *Node +State +Kind", written["120"], re.M), written["120"]


async def test_as_json_it_says_the_same(desk: Desk) -> None:
    await desk.start(await desk.node())
    seen = json.loads((await desk.run("status", "--json")).stdout)
    assert seen["ready"] is True
    assert seen["queue"]["max_size"] == 100
    assert [node["name"] for node in seen["nodes"]] == ["n1"]
    assert seen["models"] == ["m"]


async def test_of_a_fleet_all_gateways_are_shown_and_how_they_are(desk: Desk) -> None:
    gateway = await desk.start(await desk.node())
    lost = replica("9abcde01", state="lost", heard_s=42.0, settings="other")
    gateway.parts.membership.fleet = fleet = ShownFleet(replica("2c9e01ab", waiting=12), lost)
    done = await desk.run("status")
    assert done.exit_code == 0, done.output
    assert "Fleet: one queue for all gateways (leader no. 7)" in done.stderr + done.stdout
    rows = [re.split(r" {2,}", line.strip()) for line in done.stdout.splitlines()]
    assert ["2c9e01ab", "following", "0.6.0", "12", "2", "1", "0.2 s ago"] in [r[:7] for r in rows]
    assert "42.0 s ago  other settings  http://10.0.0.9:7800" in done.stdout
    seen = json.loads((await desk.run("status", "--json")).stdout)
    assert [one["name"] for one in seen["queue"]["fleet"]["replicas"]] == [
        ME, "2c9e01ab", "9abcde01"
    ]  # fmt: skip
    fleet.change(mode="cut_off")
    done = await desk.run("status")
    assert done.exit_code == 1
    assert "NOT ready: this gateway cannot reach the shared store" in done.stdout


async def test_where_nothing_listens_it_says_how_to_start_one(desk: Desk) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        done = await desk.run("status", url=f"http://127.0.0.1:{bound.getsockname()[1]}")
    assert done.exit_code == 3
    assert "forebay serve" in done.stderr
    assert "--url" in done.stderr
    assert "Traceback" not in done.stderr


async def test_something_that_is_no_gateway_is_told_from_one(desk: Desk) -> None:
    node = await desk.node(kind="ollama")
    done = await desk.run("status", url=node.url)
    assert done.exit_code == 3
    assert "not a Forebay gateway" in done.stderr


@pytest.mark.parametrize("url", ["gopher://x", ":7800", "http://"])
async def test_what_is_no_address_is_refused_with_an_example(desk: Desk, url: str) -> None:
    done = await desk.run("status", url=url)
    assert done.exit_code == 2
    assert "http://127.0.0.1:7800" in done.stderr


async def test_without_a_key_it_says_how_to_name_one(desk: Desk) -> None:
    await desk.start(await desk.node(), keys=KEYS)
    done = await desk.run("status")
    assert done.exit_code == 4
    assert "--key-env" in done.stderr


async def test_a_key_that_is_no_admins_sees_all_but_the_nodes(desk: Desk) -> None:
    await desk.start(await desk.node(), keys=KEYS)
    done = await desk.run("status", "--key-env", "TEAM", TEAM="team-secret")
    assert done.exit_code == 0, done.output
    assert "only an admin key" in done.stdout
    done = await desk.run("status", "--key-env", "CHIEF", CHIEF="chief-secret")
    assert "online" in done.stdout


async def test_a_variable_that_is_not_set_is_named(desk: Desk) -> None:
    await desk.start()
    done = await desk.run("status", "--key-env", "NO_SUCH_KEY")
    assert done.exit_code == 2
    assert "NO_SUCH_KEY" in done.stderr


async def test_the_address_comes_from_the_settings_where_none_is_given(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = await desk.start(await desk.node())
    (tmp_path / "forebay.toml").write_text(f"[server]\nport = {gateway.port}\n")
    monkeypatch.chdir(tmp_path)
    done = await asyncio.to_thread(lambda: CliRunner().invoke(app, ["status"]))
    assert done.exit_code == 0, done.output


async def test_on_a_terminal_the_status_is_short_and_shows_who_is_in_trouble(desk: Desk) -> None:
    async with FakeNode() as gone:
        pass
    await desk.start(await desk.node(models=("llama",)), gone)
    url = f"http://127.0.0.1:{desk.gateway.port}"
    wide = {"TERM": "dumb", "COLUMNS": "200"}
    said = await asyncio.to_thread(on_a_terminal, "status", "--url", url, **wide)
    assert "Queue: 0 of 100 waiting, 0 running; 0 served" in said
    assert "1 online" in said
    assert "n2" in said
    assert "n1" not in said
    assert f"status --all --url {url}" in said
    everything = await asyncio.to_thread(on_a_terminal, "status", "-a", "--url", url, **wide)
    assert "n1" in everything


def test_a_pipe_gets_one_line_for_each_row_however_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [Node(f"n{i}", last_error=f"{'x' * 300}\nend", state="offline") for i in (1, 2)]
    show(node_table(nodes))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["Node", "n1", "n2"]
    assert "x" * 300 in lines[1]
