"""`forebay init` and `forebay doctor`: what is found on this machine, and what is to be changed."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from forebay.cli.main import app
from forebay.settings import Settings, load_settings

if TYPE_CHECKING:
    from typer.testing import Result

    from .conftest import Desk


@pytest.fixture(autouse=True)
def found_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where model servers are looked for, instead of the ports that others may use here."""
    urls: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("forebay.nodes.discovery.LOOPBACK_URLS", urls)
    monkeypatch.setattr("forebay.cli.init.USUAL_PORT", 0)
    return urls


async def run(*words: str, **environment: str) -> Result:
    return await asyncio.to_thread(CliRunner(env=environment).invoke, app, list(words))


async def checks(*words: str, port: int = 0, **environment: str) -> dict[str, list[Any]]:
    """Return what doctor says of each thing, as states and sentences."""
    done = await run("doctor", "--json", "--set", f"server.port={port}", *words, **environment)
    found: dict[str, list[Any]] = {}
    answer = json.loads(done.stdout)
    for each in answer["checks"]:
        found.setdefault(each["check"], []).append((each["state"], each["found"], each["instead"]))
    is_well = all(state != "problem" for told in found.values() for state, _, _ in told)
    assert (answer["ok"], done.exit_code) == (is_well, 0 if is_well else 1)
    return found


async def test_init_writes_the_servers_that_it_finds_and_the_file_is_fine(
    desk: Desk, found_urls: list[str]
) -> None:
    nodes = [await desk.simulated(models=("m",)), await desk.simulated(models=("n",))]
    found_urls += [node.url for node in nodes]
    done = await run("init")
    assert done.exit_code == 0, done.output
    assert f"Found sim at {found_urls[0]}" in done.stdout
    settings = load_settings(Path("forebay.toml"), (), {})
    assert [(node.name, node.url) for node in settings.nodes] == [
        ("sim", found_urls[0]), ("sim-2", found_urls[1]),
    ]  # fmt: skip
    assert settings.queue == Settings().queue
    assert (await run("config", "check", "--strict")).exit_code == 0
    assert (await run("init")).exit_code == 1
    assert (await run("init", "--force")).exit_code == 0


async def test_init_takes_another_port_where_a_strangers_program_has_the_usual_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("forebay.cli.init.USUAL_PORT", port)
        monkeypatch.setattr("forebay.cli.doctor.machine.ANSWER_S", 0.1)
        await run("init")
    assert load_settings(Path("forebay.toml"), (), {}).server.port > port


async def test_init_keeps_the_port_of_a_gateway_that_runs(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = await desk.start()
    monkeypatch.setattr("forebay.cli.init.USUAL_PORT", gateway.port)
    done = await run("init", "--json")
    assert json.loads(done.stdout)["values"] == {}


async def test_doctor_finds_nothing_wrong_with_a_machine_that_is_well(desk: Desk) -> None:
    node = await desk.simulated(models=("m",), slots=4)
    found = await checks("--set", f'nodes=[{{name="gpu", url="{node.url}"}}]')
    assert {state for told in found.values() for state, _, _ in told} == {"ok"}
    assert set(found) == {"settings", "port", "nodes", "slots", "clock", "database", "files"}
    assert "gpu (sim) is online: m" in found["nodes"][0][1]
    done = await run("doctor", "--set", "server.port=0", "--set", "usage.retention_days=3")
    start = "forebay serve --set server.port=0 --set usage.retention_days=3"
    assert f"No problems, no warnings. Start the gateway with: {start}" in done.stdout


async def test_doctor_warns_of_a_key_that_names_users_beside_other_keys() -> None:
    trusted = '{name="web", key_env="K_WEB", trust_user=true}'
    other = '{name="b", key_env="K_B"}'
    for keys, states in ((trusted, ["ok"]), (f"{other}, {trusted}", ["ok", "warning"])):
        found = (await checks("--set", f"keys=[{keys}]", K_WEB="sk-1", K_B="sk-2"))["settings"]
        assert [state for state, _, _ in found] == states
    assert "keys[1].trust_user: web may invent users" in found[1][1]


async def test_doctor_knows_a_gateway_on_the_port_from_another_program(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = await desk.start()
    state, told, _ = (await checks(port=gateway.port))["port"][0]
    assert (state, "a gateway runs on" in told) == ("ok", True)
    done = await run("doctor", "--set", f"server.port={gateway.port}")
    assert "no warnings." in done.stdout.lower()
    assert "Start the gateway" not in done.stdout
    monkeypatch.setattr("forebay.cli.doctor.machine.ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        state, told, instead = (await checks(port=taken.getsockname()[1]))["port"][0]
    assert (state, "another program does" in told) == ("problem", True)
    assert "--port" in instead


async def test_doctor_tells_of_nodes_that_do_not_answer_and_of_too_many_slots(desk: Desk) -> None:
    node = await desk.simulated(models=("m",), slots=2)
    nodes = f'nodes=[{{name="gpu", url="{node.url}", slots=9}}, {{url="http://127.0.0.1:9"}}]'
    found = await checks("--set", nodes)
    assert [state for state, _, _ in found["nodes"]] == ["ok", "problem"]
    state, told, instead = found["slots"][0]
    assert (state, "its engine runs 2 at once" in told) == ("warning", True)
    assert "slots = 2" in instead


async def test_doctor_says_what_to_install_where_there_is_no_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forebay.gateway.default_node.has_llama_cpp", lambda: False)
    state, told, instead = (await checks())["nodes"][0]
    assert (state, "no model server answers" in told) == ("problem", True)
    assert "pip install 'forebay[embedded]'" in instead
    guarded = await checks("--set", "guard.token_env=GUARDS", GUARDS="secret")
    assert guarded["nodes"] == [("ok", "none is configured; guards may register", "")]


async def test_doctor_tells_of_settings_that_cannot_be_used() -> None:
    found = await checks("--set", "queue.max_sise=1")
    state, told, instead = found["settings"][0]
    assert (state, instead) == ("problem", "did you mean queue.max_size?")
    assert "queue.max_sise" in told
    missing = await checks("--set", "guard.token_env=NO_SUCH_VARIABLE")
    assert [state for state, _, _ in missing["settings"]] == ["ok", "problem"]


async def test_doctor_tells_of_databases_and_stores_that_cannot_be_used(tmp_path: Path) -> None:
    broken = tmp_path / "broken.db"
    broken.write_text("this is no database, " * 100)
    store = ("--set", "coordination.url=redis://127.0.0.1:9")
    found = await checks("--set", f"jobs.database=sqlite:///{broken}", *store)
    assert [each[0][0] for each in (found["database"], found["store"])] == ["problem", "problem"]
    [(state, told, _)] = (await checks("--set", "coordination.url=redis://c?nosuch=1"))["store"]
    assert (state, "option behind its ?" in told) == ("problem", True)
    gone = await checks("--set", "jobs.database=postgresql://app:hush@127.0.0.1:9/jobs")
    state, told, _ = gone["database"][0]
    assert (state, "hush" in told) == ("problem", False)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
async def test_doctor_asks_a_real_postgresql_and_shows_no_password(
    postgres_url: str, scheme: str
) -> None:
    _, mark, rest = postgres_url.partition("://postgres:@")
    given = f"{scheme}://postgres:hush@{rest}"  # a server that asks for none ignores it
    assert mark
    found = await checks("--set", f"jobs.database={given}", "--set", f"sessions.database={given}")
    assert [state for state, _, _ in found["database"]] == ["ok", "ok"]
    for _, told, _ in found["database"]:
        assert told.startswith(f"{scheme}://")
        assert told.endswith(" answers")
        assert "hush" not in told


async def test_doctor_asks_a_real_valkey(valkey_url: str) -> None:
    found = await checks("--set", f"coordination.url={valkey_url}")
    assert [(state, told) for state, told, _ in found["store"]] == [("ok", f"{valkey_url} answers")]


async def test_doctor_tells_of_a_password_that_a_valkey_does_not_know(valkey_url: str) -> None:
    given = valkey_url.replace("://", "://nobody:hush@", 1)
    found = await checks("--set", f"coordination.url={given}")
    [(state, told, instead)] = found["store"]
    assert (state, "hush" in told) == ("problem", False)
    assert "cannot be used" in told
    assert "coordination.url" in instead


async def test_doctor_compares_the_clocks_of_servers_with_its_own(
    postgres_url: str, valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.cli.doctor.servers.APART_S", -1.0)  # no two are as close as that
    found = await checks(
        "--set", f"jobs.database={postgres_url}", "--set", f"coordination.url={valkey_url}"
    )
    for state, told, instead in (found["database"][0], found["store"][0]):
        assert (state, "s apart" in told) == ("warning", True)
        assert "NTP" in instead


async def test_doctor_knows_a_database_that_a_gateway_has_used(desk: Desk, tmp_path: Path) -> None:
    database = tmp_path / "used.db"
    gateway = await desk.start(jobs={"database": f"sqlite:///{database}"})
    await gateway.parts.jobs.ready()
    found = await checks("--set", f"jobs.database=sqlite:///{database}")
    assert found["database"][0] == ("ok", f"{database} is well", "")


async def test_doctor_warns_of_a_limit_of_files_below_the_connections() -> None:
    found = await checks("--set", "server.connections_max=999999999")
    state, _, instead = found["files"][0]
    assert (state, "LimitNOFILE=" in instead) == ("warning", True)
