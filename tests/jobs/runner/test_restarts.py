"""Programs that die while they run jobs, and several that share the work: real processes."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from forebay.jobs.job import NewJob
from forebay.testing.job_store_contract import found, submit

from ..programs import lines, opened, program, said
from ..script import Script, idle, job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_job_whose_program_was_killed_fails_at_the_restart_and_the_rest_goes_on(
    script: Callable[..., Script], sqlite_url: str, tmp_path: Path
) -> None:
    with opened(sqlite_url) as store:
        ids = submit(store, *(NewJob("letter", str(n)) for n in range(3)))
    with program(sqlite_url, tmp_path / "log", "hold") as child:
        while said(child) != "holding":
            assert child.poll() is None
    work = script()
    work.add("letter", vram_gb=1.0)
    work.runner.start()
    idle(work.runner)
    assert [job(work.runner, one).status for one in ids] == ["failed", "completed", "completed"]
    assert job(work.runner, ids[0]).error == "Interrupted by restart"
    assert work.ran == [("letter", 1), ("letter", 2)]


def test_a_job_that_kills_its_program_becomes_a_dead_letter(
    script: Callable[..., Script], sqlite_url: str, tmp_path: Path
) -> None:
    with opened(sqlite_url) as store:
        (job_id,) = submit(store, NewJob("letter", "1"))
    for _ in range(3):
        with program(sqlite_url, tmp_path / "log", "suicide") as child:
            assert child.ends() == 9
    work = script(on_interrupt="retry", attempts=3)
    work.add("letter")
    work.runner.start()
    idle(work.runner)
    dead = job(work.runner, job_id)
    assert (dead.status, dead.error_code, dead.attempt) == ("failed", "dead_letter", 3)
    assert work.ran == []
    assert len(lines(tmp_path / "log", "began")) == 3


def test_two_programs_on_one_database_share_the_work_each_job_once(
    postgres_url: str, tmp_path: Path
) -> None:
    logs = [tmp_path / "log0", tmp_path / "log1"]
    with opened(postgres_url) as store, ExitStack() as stack:
        mine = submit(store, *(NewJob("letter", str(n)) for n in range(60)))
        others = submit(store, NewJob("unknown", "1"))
        children = [stack.enter_context(program(postgres_url, log, "pair")) for log in logs]
        for child in children:
            assert said(child) == "holding"  # so each has one, at the same time
        for child in children:
            child.communicate("\n")
            assert child.returncode == 0
        assert {found(store, one).status for one in mine} == {"completed"}
        assert {found(store, one).attempt for one in mine} == {1}
        assert {found(store, one).status for one in others} == {"queued"}  # left for who can
    ran = [[int(line[1]) for line in lines(log, "began")] for log in logs]
    assert sorted(ran[0] + ran[1]) == mine
    assert ran == [sorted(part) for part in ran]
