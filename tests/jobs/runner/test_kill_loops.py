"""Programs killed with -9 at any moment, again and again; then their history is checked.

What must hold: no accepted job is lost, no result is recorded twice or taken back, nothing runs
after its result was recorded, and the jobs of a type begin in their order (one that was interrupted
begins again in its old place, before what came after it).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from forebay.testing.job_store_contract import expire, found

from ..programs import lines, opened, program, said

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.jobs.store.job_store import JobStore

ROUNDS = 5
LINES_MAX = 60
"""A child is killed after at most so many words: while it starts, submits or runs."""


def work_and_kill(url: str, log: Path, words: int) -> list[int]:
    """Let a child work until it has said so much; return what it had accepted when it died."""
    with program(url, log, "work") as child:
        heard = [said(child) for _ in range(words)]
        child.kill()
        heard += [line for line in child.stdout.read().split("\n") if line]
    return [int(line.split()[1]) for line in heard if line.startswith("accepted")]


def check_order(began: list[list[str]]) -> None:
    for name in {line[0] for line in began}:
        ids = [int(line[1]) for line in began if line[0] == name]
        assert ids == sorted(ids), f"{name} began out of order"


def check_once(log: Path) -> None:
    """Nothing is recorded twice, and nothing runs after it was recorded."""
    recorded: set[str] = set()
    for line in log.read_text().splitlines():
        word, _, job_id = line.split()[:3]
        assert job_id not in recorded, f"job {job_id} {word} after its result was recorded"
        if word == "recorded":
            recorded.add(job_id)


def check_history(store: JobStore, log: Path, accepted: list[int]) -> None:
    began = lines(log, "began")
    tokens = {line[2]: int(line[1]) for line in began}
    assert accepted
    for job_id in accepted:
        job = found(store, job_id)
        assert job.status == "completed", f"job {job_id} was accepted and is {job.status}"
        assert tokens[str(job.result).strip('"')] == job_id
    check_order(began)
    check_once(log)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_nothing_accepted_is_lost_or_done_twice_however_often_it_is_killed(
    database_url: str, tmp_path: Path, seed: int
) -> None:
    rng, log = random.Random(seed), tmp_path / "log"
    accepted: list[int] = []
    with opened(database_url) as store:
        for _ in range(ROUNDS):
            accepted += work_and_kill(database_url, log, rng.randint(0, LINES_MAX))
            expire(store)  # in the place of waiting for the dead one's leases
        with program(database_url, log, "drain") as last:
            assert last.ends(100) == 0
        check_history(store, log, accepted)
        assert store.depths().result(10) == {}


def test_the_checker_itself_would_catch_a_second_record_and_a_broken_order(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("began letter 1 a\nrecorded letter 1\nbegan letter 1 b\n")
    with pytest.raises(AssertionError, match="after its result"):
        check_once(log)
    with pytest.raises(AssertionError, match="out of order"):
        check_order([["letter", "2", "a"], ["letter", "1", "b"]])
