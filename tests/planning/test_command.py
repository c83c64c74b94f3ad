"""`forebay sim`: what is printed, what is refused, and how it exits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from forebay.cli.exits import BROKEN_LIMIT, USAGE
from forebay.cli.main import app

from .making import line, refused, write

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten requests in ten seconds for two seconds each, on one node with one slot; one refused."""
    monkeypatch.chdir(tmp_path)
    lines = [
        line(number, waited_s=float(number), run_s=2.0, user_hash="ab"[number % 2] * 2,
             priority=("high", "normal")[number % 2], output_tokens=20)
        for number in range(10)
    ]  # fmt: skip
    return write(tmp_path / "access.log", *lines, refused(9.5, priority="low"))


def sim(log: Path, *words: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["sim", "--from", str(log), *words])


def rows_of(done: Result) -> dict[str, list[str]]:
    """Return the cells of the rows by their first words."""
    lines = (text.split("  ") for text in done.stdout.splitlines())
    cells = ([cell.strip() for cell in found if cell.strip()] for found in lines)
    return {found[0]: found[1:] for found in cells if found}


def test_variants_stand_side_by_side_with_what_was_recorded(log: Path) -> None:
    done = sim(log, "--variant", "nodes=2xgpu:1", "--variant", "scale=2 queue.max_size=3")
    assert done.exit_code == 0, done.output
    rows = rows_of(done)
    assert rows["Requests"] == ["11", "11", "11", "22"]
    assert rows["Refused"][:3] == ["1", "0", "0"]
    assert rows["Wait max"][:2] == ["9.00 s", "10.5 s"]
    assert rows["Wait p95"][2] == "500 ms"
    assert rows["queue_full"][0] == "1"
    assert int(rows["queue_full"][3]) > 5
    assert {"aa", "bb", "high", "normal", "low"} <= rows.keys()
    assert "base: waiting, at most 6" in done.stdout
    assert "Replaying 22 requests" in done.stderr


def test_only_json_is_on_standard_output(log: Path) -> None:
    made = json.loads(sim(log, "--json", "--set", "queue.max_size=0").stdout)
    assert (made["kind"], made["version"]) == ("forebay.sim", 1)
    assert made["source"]["kind"] == "access log"
    assert made["source"]["fits"]["m"]["points"] == 10
    [variant] = made["variants"]
    assert [node["slots"] for node in variant["nodes"]] == [1]
    assert variant["summary"]["refused"] == 6  # at 1, 3, 5, 7, 9 and 9.5 s
    assert variant["settings"] == ["queue.max_size=0"]
    assert len(variant["series"]["depth"]) == len(variant["series"]["requests"]["bins"])
    assert made["recorded"]["all"]["ok"] == 10


def test_a_load_that_somebody_tells_of_is_not_in_the_service_times_too(tmp_path: Path) -> None:
    lines = [line(10.0 * number, run_s=9.0, model="ab"[number % 2]) for number in range(8)]
    log = write(tmp_path / "swaps.log", *lines)
    made = json.loads(sim(log, "--json", "--load-seconds", "8").stdout)
    assert made["source"]["fits"]["a"]["first_s"] == 1.0
    [variant] = made["variants"]
    assert variant["load_s"] == 8.0
    assert variant["summary"]["swaps"] == 8
    assert variant["summary"]["all"]["wait"]["max"] == 0.0


def test_the_same_seed_says_the_same(log: Path) -> None:
    words = ("--json", "--scale", "3", "--seed", "4")
    assert sim(log, *words).stdout == sim(log, *words).stdout


def test_settings_come_from_where_the_gateway_has_them(log: Path) -> None:
    toml = '[queue]\nmax_size = 0\n[[nodes]]\nname = "n1"\nurl = "http://127.0.0.1:9"\nslots = 2\n'
    (log.parent / "forebay.toml").write_text(toml)
    [variant] = json.loads(sim(log, "--json").stdout)["variants"]
    assert [node["slots"] for node in variant["nodes"]] == [2]
    assert variant["summary"]["queued"] in (0, None)


@pytest.mark.parametrize("condition", ["wait_p95>2s", "high:wait_max>1s", "utilisation>50%"])
def test_a_limit_that_does_not_hold_in_one_of_the_variants_is_said(
    log: Path, condition: str
) -> None:
    done = sim(log, "--nodes", "9xgpu:9", "--fail-if", condition, "--variant", "nodes=gpu:1")
    assert done.exit_code == BROKEN_LIMIT
    assert f"nodes=gpu:1: --fail-if {condition}: it is " in done.stderr
    assert "base: --fail-if" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--variant", "nodes"), "changes nothing"),
        (("--variant", "scale=1"), "equals the base"),
        (("--variant", "'"), "No closing quotation"),
        (("--variant", "scale=no"), "a number from"),
        (("--variant", "queue.fairnes=fifo"), "did you mean queue.fairness"),
        (("--set", "queue.fairness=random"), "queue.fairness"),
        (("--set", "server.port=9"), "Only those of queue.*"),
        (("--fail-if", "waits>1"), "nothing is called waits"),
        (("--fail-if", "nobody:wait_p95>1s"), "neither a priority nor a user"),
        (("--fail-if", "high:swaps>1"), "only for the whole run"),
        (("--load-seconds", "nan"), "from 0 to 86400"),
        (("--config", "no-such.toml"), "no such file"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(log: Path, words: tuple[str, ...], said: str) -> None:
    done = sim(log, *words)
    assert done.exit_code == USAGE
    assert said in done.stderr
    assert not done.stdout


def test_a_trace_says_what_is_assumed_and_needs_nodes(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("at_s,prompt_tokens,output_tokens\n0,100,10\n0,100,10\n")
    assert "--nodes 2xgpu:8" in sim(trace).stderr
    done = sim(trace, "--nodes", "model:1", "--speed", "2", "--users", "2")
    assert done.exit_code == 0, done.output
    assert "A trace has no times" in done.stderr
    assert rows_of(done)["Wait max"] == ["95.0 ms"]
