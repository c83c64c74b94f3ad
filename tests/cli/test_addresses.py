"""`--url`: whatever is typed there, each command says what is wrong with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from forebay.cli.main import app
from forebay.settings import digest_of

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

    from .conftest import Desk

COMMANDS = (
    "status",
    "top --once",
    "nodes list",
    "nodes drain n",
    "jobs list",
    "jobs watch 1",
    "chat",
    "bench --duration 1s",
    "batch FILE",
)
BAD = (
    "http://[::1",
    "http://[zzz]:1",
    "http://127.0.0.1:99999",
    "http://127.0.0.1:-1",
    "http://127.0.0.1:0",
    "http://127.0.0.1:port",
    "http://127.0.0.1:",
    "http://me:secret@127.0.0.1:7800",
    "http://127.0.0.1:7800?x=1",
    "http://",
    "http://a b",
    f"http://{'a' * 64}.example",
    "http://gäte.example",
    "http://127.0.0.1:7800/\x1b[2J",
    "ftp://127.0.0.1",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_says_what_is_wrong_with_an_address(command: str, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("{}\n")
    words = [str(file) if word == "FILE" else word for word in command.split()]
    for url in BAD:
        done = CliRunner().invoke(app, [*words, "--url", url])
        assert isinstance(done.exception, SystemExit), (url, done.exception)
        assert done.exit_code == 2, url
        assert done.stderr.startswith("forebay: --url: "), url
        assert "secret" not in done.stderr and "\x1b" not in done.stderr  # noqa: PT018
        assert done.stdout == ""


def test_a_port_that_no_address_has_is_named() -> None:
    done = CliRunner().invoke(app, ["status", "--url", "http://127.0.0.1:99999"])
    assert "a port is from 1 to 65535" in done.stderr


def test_a_variable_names_the_gateway_and_is_named_where_it_is_wrong() -> None:
    done = CliRunner(env={"FOREBAY_URL": "http://127.0.0.1:99999"}).invoke(app, ["status"])
    assert done.exit_code == 2
    assert done.stderr.startswith("forebay: FOREBAY_URL: http://127.0.0.1:99999 is not")


async def test_the_gateway_and_the_key_come_from_the_environment(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [{"name": "team", "key_sha256": digest_of("fb-secret")}]
    gateway = await desk.start(await desk.node(), keys=keys)
    (tmp_path / "forebay.toml").write_text("broken")  # of no use, so of no harm
    monkeypatch.chdir(tmp_path)
    where = {"FOREBAY_URL": f"http://127.0.0.1:{gateway.port}/v1", "FOREBAY_API_KEY": "fb-secret"}

    async def asked(*words: str, **environment: str) -> Result:
        runner = CliRunner(env=where | environment)
        return await asyncio.to_thread(runner.invoke, app, ["status", *words])

    assert (await asked()).exit_code == 0
    for refused in (
        await asked(FOREBAY_API_KEY="fb-other"),
        await asked("--key-env", "OTHER", OTHER="fb-other"),
    ):
        assert refused.exit_code == 4
        assert "Name another key with --key-env VAR, or set FOREBAY_API_KEY" in refused.stderr
    nowhere = await asked("--url", "http://127.0.0.1:9")
    assert nowhere.exit_code == 3
    assert "FOREBAY_URL" in nowhere.stderr
