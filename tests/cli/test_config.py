"""`forebay config`: init, check, show and schema."""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from forebay.cli.main import app
from forebay.settings import Settings, load_settings
from forebay.settings.example import json_schema
from forebay.settings.names import valid_keys
from forebay.testing import FakeNode


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("forebay.nodes.discovery.LOOPBACK_URLS", ())
    monkeypatch.setattr("forebay.cli.init.USUAL_PORT", 0)


def run(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(app, ["config", *arguments], env=environ)


def test_init_writes_a_file_that_means_the_defaults() -> None:
    done = run("init")
    assert done.exit_code == 0
    assert "forebay config check forebay.toml" in done.stdout
    assert load_settings(Path("forebay.toml"), (), {}) == Settings()


def test_init_replaces_a_file_only_when_forced() -> None:
    Path("mine.toml").write_text("[server]\nport = 1\n")
    done = run("init", "mine.toml")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "--force" in done.stderr
    assert Path("mine.toml").read_text() == "[server]\nport = 1\n"
    assert run("init", "--force", "mine.toml").exit_code == 0
    assert load_settings(Path("mine.toml"), (), {}) == Settings()


def test_init_says_when_the_path_cannot_be_written() -> None:
    done = run("init", "no/such/folder.toml")
    assert done.exit_code == 1
    assert "cannot be written" in done.stderr


def test_check_of_nothing_explains_the_defaults() -> None:
    done = run("check")
    assert done.exit_code == 0
    assert "No settings file" in done.stdout
    assert "http://127.0.0.1:7800" in done.stdout
    assert "Up to 100 requests wait" in done.stdout


def test_check_takes_the_file_of_the_current_directory_or_the_one_named() -> None:
    Path("forebay.toml").write_text("[server]\nport = 1111\n")
    Path("other.toml").write_text("[server]\nport = 2222\n")
    assert ":1111" in run("check").stdout
    assert ":2222" in run("check", "other.toml").stdout
    assert ":3333" in run("check", FOREBAY_SERVER__PORT="3333").stdout


@pytest.mark.parametrize("verb", ["check", "show"])
def test_the_file_is_named_by_an_option_or_by_a_word_and_once(verb: str) -> None:
    Path("one.toml").write_text("[server]\nport = 1111\n")
    Path("two.toml").write_text("[server]\nport = 2222\n")
    for words in (["--config", "one.toml"], ["one.toml"], ["one.toml", "--config", "one.toml"]):
        done = run(verb, *words)
        assert (done.exit_code, "1111" in done.stdout) == (0, True), words
    done = run(verb, "two.toml", "--config", "one.toml")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "two files" in done.stderr


def test_check_lists_every_problem_and_ends_with_two() -> None:
    Path("forebay.toml").write_text("[queue]\nmax_sise = 1\n[server]\nport = -1\n")
    done = run("check")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "did you mean queue.max_size?" in done.stderr
    assert "server.port" in done.stderr


def test_check_looks_for_secrets_and_files() -> None:
    Path("forebay.toml").write_text(
        '[server]\ntls_cert = "cert.pem"\ntls_key = "key.pem"\n[guard]\ntoken_env = "TOKEN"\n'
        '[[nodes]]\nurl = "http://a"\napi_key_env = "NODE_KEY"\n'
        '[[keys]]\nname = "a"\nkey_env = "A_KEY"\n'
    )
    done = run("check")
    assert done.exit_code == 2
    for part in ("cert.pem", "key.pem", "TOKEN", "NODE_KEY", "A_KEY"):
        assert part in done.stderr
    secrets = {"TOKEN": "t", "NODE_KEY": "n", "A_KEY": "k"}
    Path("cert.pem").touch()
    Path("key.pem").touch()
    done = run("check", **secrets)
    assert done.exit_code == 2
    assert "server.tls_cert: the certificate and its key cannot be used" in done.stderr
    kind = ["-x509", "-nodes", "-days", "2", "-newkey", "ec", "-pkeyopt"]
    files = ["-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.pem"]
    command = ["openssl", "req", *kind, "ec_paramgen_curve:prime256v1", *files]
    subprocess.run(command, check=True, capture_output=True)
    assert run("check", **secrets).exit_code == 0


def test_check_as_json_says_the_same() -> None:
    assert json.loads(run("check", "--json").stdout)["ok"] is True
    done = run("check", "--json", FOREBAY_SERVER__PORT="-1")
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["ok"]) == (2, False)
    assert answer["problems"][0]["key"] == "server.port"


def test_show_tells_every_value_and_its_source() -> None:
    Path("forebay.toml").write_text("[queue]\nmax_size = 5\n")
    done = run("show", "--set", "retry.attempts=2", FOREBAY_SERVER__PORT="1234")
    assert done.exit_code == 0
    lines = {line.partition(" = ")[0]: line for line in done.stdout.splitlines()}
    assert set(lines) == set(valid_keys())
    assert " ".join(lines["queue.max_size"].split()) == "queue.max_size = 5 # file forebay.toml"
    assert lines["server.port"].endswith("# env FOREBAY_SERVER__PORT")
    assert lines["retry.attempts"].endswith("# flag --set retry.attempts")
    assert lines["queue.full_status"].endswith("# default")


def test_show_as_json_is_strict_json_even_with_no_limit() -> None:
    done = run("show", "--json", "--set", "queue.max_wait_seconds=inf")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    shown = json.loads(done.stdout, parse_constant=refuse)
    assert shown["queue.max_wait_seconds"]["value"] == "inf"
    assert shown["queue.max_wait_seconds"]["from"] == "flag"
    assert shown["server.port"] == {"value": 7800, "from": "default"}


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_show_hides_what_is_secret(form: list[str]) -> None:
    Path("mine.toml").write_text(
        '[jobs]\ndatabase = "postgresql://app:hush@db/jobs"\n'
        f'[[keys]]\nname = "a"\nkey_sha256 = "{"ab" * 32}"\n'
    )
    done = run("show", "--config", "mine.toml", *form)
    assert done.exit_code == 0
    assert "postgresql://app:***@db/jobs" in done.stdout
    assert "hush" not in done.stdout
    assert "abab" not in done.stdout


def test_show_refuses_bad_settings_like_check() -> None:
    done = run("show", "--set", "queue.max_sise=1")
    assert done.exit_code == 2
    assert "did you mean queue.max_size?" in done.stderr


def test_schema_prints_what_editors_need() -> None:
    done = run("schema")
    assert (done.exit_code, done.stdout) == (0, json_schema())


def test_check_tells_of_risks_and_counts_them_only_when_it_is_strict() -> None:
    Path("forebay.toml").write_text('[server]\nhost = "0.0.0.0"\n\n[queue]\nmax_per_user = 200\n')
    done = run("check")
    assert done.exit_code == 0
    assert "But look at 2 warnings:" in done.stdout
    assert "queue.max_per_user (file forebay.toml:5)" in done.stdout
    assert "forebay keys new NAME --admin" in done.stdout
    assert run("check", "--strict").exit_code == 2
    answer = json.loads(run("check", "--strict", "--json").stdout)
    assert (answer["ok"], len(answer["warnings"])) == (False, 2)
    mended = ("--set", "queue.max_per_user=0", "--set", "server.host=::1")
    assert run("check", "--strict", *mended).exit_code == 0


def test_check_names_the_line_and_the_nearest_word() -> None:
    Path("forebay.toml").write_text('[queue]\n\nfairness = "roundrobin"\n')
    done = run("check")
    assert "queue.fairness (file forebay.toml:3)" in done.stderr
    assert 'did you mean "round_robin"?' in done.stderr


@pytest.mark.parametrize(
    ("database", "part"),
    [
        ("sqlite:///no/such/folder/x.db", "mkdir -p"),
        ("sqlite://", "lost when the gateway stops"),
        ("sqlite:////proc/x.db", "may not write"),
    ],
)
def test_check_looks_where_jobs_would_be_kept(database: str, part: str) -> None:
    if database == "sqlite:////proc/x.db" and os.access("/proc", os.W_OK):
        pytest.skip("whoever runs this may write anywhere")
    done = run("check", "--set", f"jobs.database={database}")
    assert done.exit_code == 0
    assert "jobs.database" in done.stdout
    assert part in done.stdout


def test_check_notices_a_database_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = Path("mounts")
    mounts.write_text(f"disk / ext4 rw 0 0\nshm {Path.cwd()} tmpfs rw 0 0\n")
    monkeypatch.setattr("forebay.cli.config.checks.MOUNTS", mounts)
    monkeypatch.setenv("XDG_STATE_HOME", str(Path.cwd()))
    assert "is in memory (tmpfs)" in run("check").stdout
    mounts.write_text(f"shm / tmpfs rw 0 0\ndisk {Path.cwd()} ext4 rw 0 0\n")
    assert "in memory" not in run("check").stdout


async def test_check_asks_the_nodes_when_told_to() -> None:
    async with FakeNode(models=("llama",)) as node:
        nodes = f'nodes=[{{name="there", url="{node.url}"}}, {{name="gone", url="http://[::1]:9"}}]'
        words = ("check", "--probe", "--set", nodes)
        done = await asyncio.to_thread(run, *words)
        assert done.exit_code == 0, done.output
        assert "Node there is online now" in done.stdout
        assert "llama" in done.stdout
        assert "Node gone does NOT answer now" in done.stdout
        assert (await asyncio.to_thread(run, *words, "--strict")).exit_code == 2
        answer = json.loads((await asyncio.to_thread(run, *words, "--json")).stdout)
        assert [probed["state"] for probed in answer["nodes"]] == ["online", "offline"]


def test_init_says_where_it_wrote_as_json_too() -> None:
    said = json.loads(run("init", "mine.toml", "--json").stdout)
    assert said == {"path": "mine.toml", "values": {}, "nodes": []}
