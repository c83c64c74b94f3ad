"""`forebay keys`: a key shown once, in force at a gateway or with the block that lets it in."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from forebay.cli import exits
from forebay.cli.main import app
from forebay.settings import load_settings, resolve_keys

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Desk


def test_the_block_it_prints_lets_the_key_in(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["keys", "new", "team-a", "--offline"])
    assert done.exit_code == 0
    (key,) = [line for line in done.stdout.splitlines() if line.startswith("fb-")]
    file = tmp_path / "forebay.toml"
    file.write_text(done.stdout[done.stdout.index("[[keys]]") :])
    (resolved,) = resolve_keys(load_settings(file, (), {}), {})
    assert resolved.name == "team-a"
    assert resolved.sha256 == sha256(key.encode()).hexdigest()
    assert done.stdout.count(key) == 1


def test_as_json_it_says_the_same() -> None:
    done = CliRunner().invoke(app, ["keys", "new", "team-a", "--offline", "--json"])
    shown = json.loads(done.stdout)
    assert shown["key_sha256"] == sha256(shown["key"].encode()).hexdigest()
    assert shown["key_sha256"] in shown["toml"]
    assert len(shown["key"]) == len("fb-") + 43  # 32 bytes, 6 bits a letter


def test_every_key_is_another() -> None:
    runs = [CliRunner().invoke(app, ["keys", "new", "a", "--offline", "--json"]) for _ in range(5)]
    assert len({json.loads(done.stdout)["key"] for done in runs}) == 5


@pytest.mark.parametrize("name", ["", "a b", 'a"', "x" * 65])
def test_a_name_that_is_not_plain_is_refused_with_a_way_out(name: str) -> None:
    done = CliRunner().invoke(app, ["keys", "new", name])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "team-a" in done.stderr


def test_what_it_may_do_is_in_the_block_too(tmp_path: Path) -> None:
    asked = ["keys", "new", "a", "--offline", "--admin", "--user", "ann"]
    done = CliRunner().invoke(app, [*asked, "--set", 'models=["m"]', "--set", "max_running=4"])
    file = tmp_path / "forebay.toml"
    file.write_text(done.stdout[done.stdout.index("[[keys]]") :])
    (key,) = load_settings(file, (), {}).keys
    assert (key.admin, key.user, key.models, key.max_running) == (True, "ann", ("m",), 4)


@pytest.mark.parametrize(
    ("assignment", "wrong"),
    [
        ("weight=0", "--set weight: it is below 0.001, got 0; write 0.001 or more."),
        ("max_runing=3", "--set max_runing: it is not a setting; did you mean max_running?"),
    ],
)
def test_what_cannot_be_set_is_refused_with_what_can(assignment: str, wrong: str) -> None:
    done = CliRunner().invoke(app, ["keys", "new", "a", "--offline", "--set", assignment])
    assert (done.exit_code, done.stdout) == (exits.USAGE, "")
    assert f"{wrong} Nothing was created." in " ".join(done.stderr.split())


def test_where_no_gateway_answers_it_prints_the_block_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forebay.toml").write_text("[server]\nport = 1\n")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["keys", "new", "a"])
    assert (done.exit_code, "[[keys]]" in done.stdout) == (0, True)
    assert "settings file" in done.stderr
    named = CliRunner().invoke(app, ["keys", "new", "a", "--url", "http://127.0.0.1:1"])
    assert (named.exit_code, named.stdout) == (exits.NOT_REACHABLE, "")


async def test_keys_are_made_listed_and_revoked_at_a_running_gateway(
    desk: Desk, tmp_path: Path
) -> None:
    await desk.start(jobs={"database": f"sqlite:///{tmp_path}/jobs.db"})
    refused = await desk.run("keys", "new", "plain")
    assert (refused.exit_code, "admin" in refused.stderr) == (exits.FAILED, True)
    made = json.loads((await desk.run("keys", "new", "boss", "--admin", "--json")).stdout)
    boss = {"BOSS": made["key"]}
    denied = await desk.run("keys", "list")
    assert denied.exit_code == exits.NOT_ALLOWED
    team = ("keys", "new", "team-a", "--user", "ann", "--set", "tokens_per_day=90000")
    more = ("--set", "max_running=4", "--set", "weight=2.5", "--set", "trust_user=true")
    done = await desk.run(*team, *more, "--key-env", "BOSS", **boss)
    assert done.exit_code == 0
    (text,) = [line for line in done.stdout.splitlines() if line.startswith("fb-")]
    listed = await desk.run("keys", "list", "--key-env", "BOSS", **boss)
    first, *rows = listed.stdout.splitlines()
    assert first.split()[:3] == ["Key", "User", "Admin"]
    assert [re.split("  +", row)[:-1] for row in rows] == [
        ["boss", "boss", "yes", "all", "high", "none", "this machine"],
        ["team-a", "ann/*", "no", "all", "high", "4 at once, 90,000 tokens/day, weight 2.5",
            "key boss"],
    ]  # fmt: skip
    assert text not in listed.stdout
    gone = await desk.run("keys", "revoke", "team-a", "--key-env", "BOSS", **boss)
    assert gone.exit_code == 0
    left = await desk.run("keys", "list", "--json", "--key-env", "BOSS", **boss)
    assert [key["name"] for key in json.loads(left.stdout)] == ["boss"]
