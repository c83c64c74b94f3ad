"""What every job store must do when work is interrupted, cancelled, tried again or looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.jobs.job import Change, Failure, NewJob
from forebay.jobs.store.recovery import Recovery
from forebay.testing.job_store_steps import (
    OpenStore,
    claim,
    claimed,
    expire,
    found,
    letter,
    rows,
    submit,
)

if TYPE_CHECKING:
    from forebay.jobs.store.job_store import JobStore


class JobEndingsContract:
    """The second half of `JobStoreContract`."""

    # -- interruptions

    def test_after_a_restart_what_was_running_fails_and_what_was_queued_stays(
        self, store: JobStore
    ) -> None:
        ids = submit(store, letter(1), letter(2))
        claimed(store)
        assert store.recover(Recovery()).result(10) == 1
        first = found(store, ids[0])
        assert (first.status, first.error) == ("failed", "Interrupted by restart")
        assert first.error_code == "interrupted"
        assert found(store, ids[1]).status == "queued"

    def test_an_interrupted_job_is_tried_again_and_then_is_a_dead_letter(
        self, store: JobStore
    ) -> None:
        (job_id,) = submit(store, letter(1))
        for _ in range(2):
            claimed(store)
            store.recover(Recovery(retry=True, attempts=3)).result(10)
            assert found(store, job_id).status == "queued"
        claimed(store)
        store.recover(Recovery(retry=True, attempts=3)).result(10)
        dead = found(store, job_id)
        assert (dead.status, dead.error_code, dead.attempt) == ("failed", "dead_letter", 3)

    def test_only_ended_leases_are_taken_over(self, store: JobStore) -> None:
        submit(store, letter(1))
        claimed(store)
        how = Recovery(retry=True, attempts=3, expired_only=True)
        assert store.recover(how).result(10) == 0
        expire(store)
        assert store.recover(how).result(10) == 1
        assert claimed(store, worker="w2").attempt == 2

    def test_who_lost_the_lease_can_no_longer_end_the_job(self, store: JobStore) -> None:
        submit(store, letter(1))
        lost = claimed(store, worker="w1")
        expire(store)
        store.recover(Recovery(retry=True, attempts=3, expired_only=True)).result(10)
        held = claimed(store, worker="w2")
        assert not store.complete(lost, '"old"').result(10)
        assert not store.give_back(lost, tried=True).result(10)
        assert store.complete(held, '"new"').result(10)
        assert found(store, held.id).result == '"new"'

    def test_types_that_do_not_resume_fail_even_when_queued(self, store: JobStore) -> None:
        ids = submit(store, letter(1), NewJob("sync", "{}"))
        assert store.recover(Recovery(never_again=("sync",))).result(10) == 1
        assert found(store, ids[1]).status == "failed"
        assert found(store, ids[0]).status == "queued"

    def test_a_queue_that_can_never_run_is_failed_whole(self, store: JobStore) -> None:
        ids = submit(store, letter(1), letter(2), NewJob("other", "{}"))
        assert store.fail_queue("letter", Failure("no handler", "unknown_type")).result(10) == 2
        assert found(store, ids[0]).error == "no handler"
        assert found(store, ids[2]).status == "queued"

    # -- those who asked

    def test_a_cancelled_job_never_runs(self, store: JobStore) -> None:
        (job_id,) = submit(store, letter(1))
        before = store.cancel(job_id).result(10)
        assert before is not None
        assert before.status == "queued"
        assert claim(store) is None
        assert found(store, job_id).status == "cancelled"

    def test_a_job_cancelled_while_it_runs_stays_cancelled(self, store: JobStore) -> None:
        (job_id,) = submit(store, letter(1))
        job = claimed(store)
        before = store.cancel(job_id).result(10)
        assert before is not None
        assert before.status == "running"
        assert not store.complete(job, "1").result(10)
        assert found(store, job_id).status == "cancelled"

    def test_cancelling_what_has_ended_changes_nothing(self, store: JobStore) -> None:
        (job_id,) = submit(store, letter(1))
        store.complete(claimed(store), "1").result(10)
        before = store.cancel(job_id).result(10)
        assert before is not None
        assert before.status == "completed"
        assert found(store, job_id).status == "completed"

    def test_others_jobs_are_not_there(self, store: JobStore) -> None:
        (job_id,) = submit(store, letter(1, owner="a"))
        assert store.get(job_id, "b").result(10) is None
        assert store.cancel(job_id, "b").result(10) is None
        assert store.retry(job_id, "b", 10).result(10).job is None
        assert store.list(owner="b").result(10) == []
        assert [job.id for job in store.list(owner="a").result(10)] == [job_id]
        assert store.get(10**12).result(10) is None

    def test_a_failed_job_is_queued_again_with_all_its_attempts(self, store: JobStore) -> None:
        (job_id,) = submit(store, letter(1))
        store.fail(claimed(store), Failure("boom")).result(10)
        assert store.retry(job_id, None, 10).result(10).done
        job = found(store, job_id)
        assert (job.status, job.attempt, job.error, job.traceback) == ("queued", 0, None, None)
        assert claimed(store).fence == 2

    def test_a_retry_makes_no_second_of_the_same_work(self, store: JobStore) -> None:
        (first,) = submit(store, letter(1))
        store.fail(claimed(store), Failure("boom")).result(10)
        (second,) = submit(store, letter(1))
        assert store.retry(first, None, 10).result(10).twin == second
        assert found(store, first).status == "failed"

    def test_a_retry_keeps_to_the_depth(self, store: JobStore) -> None:
        (first,) = submit(store, letter(1))
        store.fail(claimed(store), Failure("boom")).result(10)
        submit(store, letter(2))
        assert store.retry(first, None, 1).result(10).full
        assert store.retry(first, None, 2).result(10).done

    def test_jobs_are_listed_newest_first_by_status_and_type(self, store: JobStore) -> None:
        ids = submit(store, letter(1), letter(2), NewJob("other", "{}"))
        claimed(store)
        assert [job.id for job in store.list().result(10)] == ids[::-1]
        assert [job.id for job in store.list(status="running").result(10)] == [ids[0]]
        assert [job.id for job in store.list(task_type="other").result(10)] == [ids[2]]
        assert [job.id for job in store.list(before=ids[2], limit=1).result(10)] == [ids[1]]

    def test_depths_and_counts_tell_what_there_is(self, store: JobStore) -> None:
        submit(store, letter(1), letter(2), NewJob("other", "{}", queue="q"))
        claimed(store)
        assert store.depths().result(10) == {"letter": 1, "q": 1}
        counted = {("letter", "queued"): 1, ("letter", "running"): 1, ("other", "queued"): 1}
        assert store.counts().result(10) == counted

    # -- the whole

    def test_every_change_is_told_once_it_is_committed(self, store: JobStore) -> None:
        heard: list[Change] = []
        store.changes.listeners.append(heard.append)
        (job_id,) = submit(store, letter(1))
        job = claimed(store)
        store.stage(job, "half").result(10)
        store.complete(job, "1").result(10)
        store.complete(job, "2").result(10)
        store.database.write(lambda _: None).result(10)  # whatever was told before it, is told
        assert [(one.id, one.before, one.status, one.stage) for one in heard] == [
            (job_id, None, "queued", None),
            (job_id, "queued", "running", None),
            (job_id, "running", "running", "half"),
            (job_id, "running", "completed", None),
        ]

    def test_everything_is_there_after_it_was_closed(self, open_store: OpenStore) -> None:
        store = open_store()
        ids = submit(store, letter(1), letter(2))
        store.complete(claimed(store), "1").result(10)
        store.database.close()
        again = open_store()
        assert [job.status for job in again.list().result(10)] == ["queued", "completed"]
        assert claimed(again).id == ids[1]

    def test_work_that_fails_takes_nothing_else_with_it(self, store: JobStore) -> None:
        def broken(_: object) -> None:
            raise ValueError("not today")

        futures = [store.add([letter(n)]) for n in range(5)]
        bad = store.database.write(broken)
        futures += [store.add([letter(n)]) for n in range(5, 10)]
        assert len({future.result(10)[0].id for future in futures}) == 10
        with pytest.raises(ValueError, match="not today"):
            bad.result(10)
        assert rows(store.database) == 10
