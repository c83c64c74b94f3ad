"""Types that are registered after the start, as those of `get_runner()` are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.jobs.job import NewJob
from forebay.testing.job_store_contract import submit

from ..programs import opened
from ..script import Script, idle, job

if TYPE_CHECKING:
    from collections.abc import Callable


def test_queued_jobs_wait_for_a_type_that_is_registered_after_the_start(
    script: Callable[..., Script], sqlite_url: str
) -> None:
    with opened(sqlite_url) as store:
        submit(store, *(NewJob("letter", str(n)) for n in range(3)))
    work = script()
    work.runner.start()
    idle(work.runner)
    work.add("letter", vram_gb=1.0)
    idle(work.runner)
    assert work.ran == [("letter", 0), ("letter", 1), ("letter", 2)]


def test_leftovers_of_a_bypass_type_that_is_registered_later_fail(
    script: Callable[..., Script], sqlite_url: str
) -> None:
    with opened(sqlite_url) as store:
        (old,) = submit(store, NewJob("sync", "1"))
    work = script()
    work.runner.start()
    work.add("sync", llm=False)
    work.submit("sync", 2)
    idle(work.runner)
    assert job(work.runner, old).error == "Interrupted by restart"
    assert work.ran == [("sync", 2)]
