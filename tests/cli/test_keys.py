"""`forebay keys new`: a key shown once, and the block that lets it in."""

import json
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forebay.cli.main import app
from forebay.settings import load_settings, resolve_keys


def test_the_block_it_prints_lets_the_key_in(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["keys", "new", "team-a"])
    assert done.exit_code == 0
    (key,) = [line for line in done.stdout.splitlines() if line.startswith("fb-")]
    file = tmp_path / "forebay.toml"
    file.write_text(done.stdout[done.stdout.index("[[keys]]") :])
    (resolved,) = resolve_keys(load_settings(file, (), {}), {})
    assert resolved.name == "team-a"
    assert resolved.sha256 == sha256(key.encode()).hexdigest()
    assert done.stdout.count(key) == 1


def test_as_json_it_says_the_same() -> None:
    done = CliRunner().invoke(app, ["keys", "new", "team-a", "--json"])
    shown = json.loads(done.stdout)
    assert shown["key_sha256"] == sha256(shown["key"].encode()).hexdigest()
    assert shown["key_sha256"] in shown["toml"]
    assert len(shown["key"]) == len("fb-") + 43  # 32 bytes, 6 bits a letter


def test_every_key_is_another() -> None:
    runs = [CliRunner().invoke(app, ["keys", "new", "a", "--json"]) for _ in range(5)]
    assert len({json.loads(done.stdout)["key"] for done in runs}) == 5


@pytest.mark.parametrize("name", ["", "a b", 'a"', "x" * 65])
def test_a_name_that_is_not_plain_is_refused_with_a_way_out(name: str) -> None:
    done = CliRunner().invoke(app, ["keys", "new", name])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "team-a" in done.stderr
