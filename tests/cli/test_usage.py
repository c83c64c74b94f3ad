"""`forebay usage`: what was used, as a table, as JSON and as CSV."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import pytest

from forebay.cli import exits
from forebay.testing import RawClient
from harness.polling import pause

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Desk


@pytest.fixture
async def used(desk: Desk, tmp_path: Path) -> Desk:
    """Serve three requests of two users, and wait until that is written."""
    node = await desk.simulated(models=("m",), slots=4, ttft_s=0.0, tokens_per_second=0.0)
    gateway = await desk.start(node, jobs={"database": f"sqlite:///{tmp_path}/jobs.db"})
    async with await RawClient.connect("127.0.0.1", gateway.port) as client:
        for user in ("ann", "ann", "=cmd()"):
            body = {"model": "m", "user": user, "max_tokens": 2,
                    "messages": [{"role": "user", "content": "hi"}]}  # fmt: skip
            await client.post("/v1/chat/completions", body)
            assert (await client.reply()).status == 200
    while not json.loads((await desk.run("usage", "--json")).stdout):
        await pause()
    return desk


async def test_it_sums_up_what_was_used_one_line_for_each(used: Desk) -> None:
    done = await used.run("usage")
    first, *rows = done.stdout.splitlines()
    assert first.split() == ["Key", "User", "Model", "Requests", "Tokens", "in", "Tokens", "out"]
    assert [row.split()[:4] for row in rows] == [
        ["-", "=cmd()", "m", "1"],
        ["-", "ann", "m", "2"],
    ]
    by_model = await used.run("usage", "--by", "model", "--hourly")
    (row,) = by_model.stdout.splitlines()[1:]
    assert row.split()[1:3] == ["m", "3"]


async def test_csv_holds_nothing_that_a_spreadsheet_would_compute(used: Desk) -> None:
    done = await used.run("usage", "--csv")
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [(row["user"], row["requests"]) for row in rows] == [("'=cmd()", "1"), ("ann", "2")]


async def test_a_time_that_is_none_is_refused(used: Desk) -> None:
    done = await used.run("usage", "--from", "yesterday")
    assert (done.exit_code, "from" in done.stderr) == (exits.FAILED, True)
    both = await used.run("usage", "--csv", "--json")
    assert both.exit_code == exits.USAGE
    empty = await used.run("usage", "--to", "2001-01-01", "--from", "2001-01-01")
    assert "no usage" in empty.stdout
