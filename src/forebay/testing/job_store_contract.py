"""What every job store must do, whatever database is under it.

Subclass `JobStoreContract` and provide the fixtures `store`, and `open_store` for a second
program. Time is never waited for: a lease that has ended is made by `expire`, which sets it into
the past by the database's own clock.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import func, insert, select, update

from forebay.jobs.job import Change, Failure, NewJob, StoredJob
from forebay.jobs.store.job_store import JobStore
from forebay.jobs.store.recovery import Recovery
from forebay.jobs.store.schema import batches, jobs

if TYPE_CHECKING:
    from forebay.storage.database import Database

OpenStore = Callable[[], JobStore]
LEASE_S = 30.0


def letter(number: int = 0, **more: Any) -> NewJob:
    return NewJob("letter", f'{{"n":{number}}}', **more)


def submit(store: JobStore, *new: NewJob, depth_max: int | None = None) -> list[int]:
    return [added.id for added in store.add(new, depth_max).result(10)]


def claim(store: JobStore, queue: str = "letter", worker: str = "w1") -> StoredJob | None:
    taken = store.claim(queue, worker, LEASE_S).result(10)
    return taken[0] if taken else None


def claimed(store: JobStore, queue: str = "letter", worker: str = "w1") -> StoredJob:
    job = claim(store, queue, worker)
    assert job is not None
    return job


def found(store: JobStore, job_id: int) -> StoredJob:
    job = store.get(job_id).result(10)
    assert job is not None
    return job


def expire(store: JobStore) -> None:
    """Let every lease end."""
    statement = update(jobs).where(jobs.c.status == "running").values(lease_until=1.0)
    store.database.write(lambda connection: connection.execute(statement).rowcount).result(10)


def rows(database: Database) -> int:
    statement = select(func.count()).select_from(jobs)
    return int(
        database.read(lambda connection: connection.execute(statement).scalar_one()).result()
    )


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
        submit(store, letter(3, owner="b"), letter(4, owner="b"))
        depths = {("letter", ""): 1, ("letter", "b"): 2, ("q", ""): 1}
        assert store.owner_depths().result(10) == depths
        counted = {("letter", "queued"): 3, ("letter", "running"): 1, ("other", "queued"): 1}
        assert store.counts().result(10) == counted

    def test_the_first_params_are_those_of_an_owner_s_next_job(self, store: JobStore) -> None:
        submit(store, letter(1), letter(2, owner="b"), letter(3, owner="b"))
        for number in (2, 3):
            known = store.first_params("letter", "b").result(10)
            taken = store.claim("letter", "w", 60.0, owner="b").result(10)
            assert [job.params for job in taken] == [known] == [letter(number).params]
        assert store.first_params("letter", "b").result(10) is None

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


class JobStoreContract(JobEndingsContract):
    """Subclass it and provide the fixtures `store`, and `open_store` for a second program."""

    # -- taking in

    def test_a_job_is_stored_as_it_was_asked_for(self, store: JobStore) -> None:
        new = NewJob("letter", '{"n":1}', 7, model="m", priority=0, owner="a", idempotency_key="k")
        (added,) = store.add([new]).result(10)
        assert added.is_new
        assert added.status == "queued"
        job = found(store, added.id)
        assert (job.task_type, job.queue, job.params, job.job_id) == (
            "letter",
            "letter",
            '{"n":1}',
            7,
        )
        assert (job.model, job.priority, job.owner, job.idempotency_key) == ("m", 0, "a", "k")
        assert (job.status, job.attempt, job.result, job.error) == ("queued", 0, None, None)
        assert job.created_at > 1_700_000_000
        assert job.started_at is None

    def test_the_same_work_is_one_job_while_it_is_unfinished(self, store: JobStore) -> None:
        first = store.add([letter(1)]).result(10)[0]
        again = store.add([letter(1)]).result(10)[0]
        assert (again.id, again.is_new, again.status) == (first.id, False, "queued")
        job = claimed(store)
        assert store.add([letter(1)]).result(10)[0].status == "running"
        assert store.complete(job, "1").result(10)
        after = store.add([letter(1)]).result(10)[0]
        assert after.is_new
        assert after.id != first.id

    def test_another_number_owner_or_params_is_another_job(self, store: JobStore) -> None:
        ids = submit(store, letter(1), letter(2), letter(1, job_id=5), letter(1, owner="b"))
        assert len(set(ids)) == 4

    def test_the_same_key_is_one_job_whatever_it_asks(self, store: JobStore) -> None:
        first = store.add([letter(1, idempotency_key="k")]).result(10)[0]
        again = store.add([letter(2, idempotency_key="k")]).result(10)[0]
        assert (again.id, again.is_new) == (first.id, False)
        assert store.add([letter(2, idempotency_key="k", owner="b")]).result(10)[0].is_new

    def test_twins_in_one_submission_are_one_job(self, store: JobStore) -> None:
        added = store.add([letter(1), letter(2), letter(1)]).result(10)
        assert added[0].id == added[2].id
        assert [one.is_new for one in added] == [True, True, False]

    def test_fifty_at_once_with_one_key_make_one_job(self, store: JobStore) -> None:
        def one(number: int) -> tuple[int, bool]:
            added = store.add([letter(number, idempotency_key="k")]).result(20)[0]
            return added.id, added.is_new

        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(one, range(50)))
        assert len({job_id for job_id, _ in answers}) == 1
        assert sum(is_new for _, is_new in answers) == 1
        assert rows(store.database) == 1

    def test_ids_grow_in_the_order_of_a_submission(self, store: JobStore) -> None:
        ids = submit(store, *(letter(n) for n in range(1200)))
        assert ids == sorted(ids)
        assert len(set(ids)) == 1200

    def test_beyond_the_depth_a_job_is_stored_failed_with_the_reason(self, store: JobStore) -> None:
        added = store.add([letter(n) for n in range(4)], 3).result(10)
        assert [one.status for one in added] == ["queued", "queued", "queued", "failed"]
        late = found(store, added[3].id)
        assert late.error == "Queue depth limit reached"
        assert late.error_code == "job_queue_full"
        assert late.finished_at is not None
        assert store.add([NewJob("other", "{}")], 3).result(10)[0].status == "queued"

    def test_the_running_one_does_not_count_as_depth(self, store: JobStore) -> None:
        submit(store, letter(1))
        claimed(store)
        assert store.add([letter(2)], 1).result(10)[0].status == "queued"
        assert store.add([letter(3)], 1).result(10)[0].status == "failed"

    def test_a_twin_is_found_even_when_there_is_no_room(self, store: JobStore) -> None:
        first = store.add([letter(1)], 1).result(10)[0]
        again = store.add([letter(1)], 1).result(10)[0]
        assert (again.id, again.is_new, again.status) == (first.id, False, "queued")

    # -- running

    def test_jobs_are_claimed_by_priority_and_then_in_order(self, store: JobStore) -> None:
        ids = submit(store, letter(1, priority=1), letter(2, priority=2), letter(3, priority=1),
                     letter(4, priority=0))  # fmt: skip
        taken = [claimed(store).id for _ in ids]
        assert taken == [ids[3], ids[0], ids[2], ids[1]]
        assert claim(store) is None

    def test_many_are_claimed_in_order_at_once(self, store: JobStore) -> None:
        ids = submit(store, *(letter(n, priority=n % 2) for n in range(10)))
        taken = store.claim("letter", "w1", LEASE_S, 6).result(10)
        assert [job.id for job in taken] == [*ids[0::2], ids[1]]

    def test_only_an_owners_jobs_are_claimed_in_order(self, store: JobStore) -> None:
        ids = submit(store, letter(1, owner="a"), letter(2, owner="b"),
                     letter(3, owner="b", priority=0), letter(4, owner="a"))  # fmt: skip
        taken = store.claim("letter", "w1", LEASE_S, 9, owner="b").result(10)
        assert [job.id for job in taken] == [ids[2], ids[1]]
        assert store.claim("letter", "w1", LEASE_S, owner="b").result(10) == []
        assert store.claim("other", "w1", LEASE_S, owner="a").result(10) == []

    def test_owners_are_passed_over_and_the_others_claimed_in_order(self, store: JobStore) -> None:
        ids = submit(store, *(letter(n, owner=who) for n, who in enumerate("abcab")),
                     letter(9, owner="", priority=0))  # fmt: skip

        def claim_others() -> list[int]:
            taken = store.claim("letter", "w1", LEASE_S, passed_over=("a", "c", "z")).result(10)
            return [job.id for job in taken]

        assert [claim_others() for _ in range(4)] == [[ids[5]], [ids[1]], [ids[4]], []]
        assert [job.id for job in store.claim("letter", "w1", LEASE_S, 9).result(10)] == [
            ids[0], ids[2], ids[3]
        ]  # fmt: skip

    def test_many_who_pass_an_owner_over_get_every_other_job_once(
        self, open_store: OpenStore
    ) -> None:
        stores = [open_store() for _ in range(4 if self.many else 1)]
        ids = submit(stores[0], *(letter(n, owner="abc"[n % 3]) for n in range(60)))

        def claim_all(store: JobStore) -> list[int]:
            taken: list[int] = []
            while found := store.claim("letter", "w", LEASE_S, passed_over=["b"]).result(20):
                taken += [job.id for job in found]
            return taken

        with ThreadPoolExecutor(4) as pool:
            lists = list(pool.map(claim_all, stores))
        taken = sorted(one for some in lists for one in some)
        assert taken == [one for n, one in enumerate(ids) if n % 3 != 1]

    def test_a_job_is_claimed_once_however_many_ask(self, open_store: OpenStore) -> None:
        stores = [open_store() for _ in range(3)] if self.many else [open_store()]
        ids = submit(stores[0], *(letter(n) for n in range(60)))

        def drain(place: int) -> list[int]:
            taken: list[int] = []
            while (job := claim(stores[place % len(stores)], worker=f"w{place}")) is not None:
                taken.append(job.id)
            return taken

        with ThreadPoolExecutor(6) as pool:
            parts = list(pool.map(drain, range(6)))
        assert sorted(job_id for part in parts for job_id in part) == ids
        assert all(part == sorted(part) for part in parts)

    def test_owners_take_turns_inside_a_priority(self, open_store: OpenStore) -> None:
        store = open_store()
        ids = submit(store, *(letter(n, owner=who) for n, who in enumerate("aaabbc")),
                     letter(9, owner="b", priority=0))  # fmt: skip
        taken = [claimed(store).id for _ in range(4)]
        assert taken == [ids[6], ids[0], ids[3], ids[5]]  # that of another priority was no turn
        again = open_store() if self.many else store  # the rows know whose turn it is
        assert [claimed(again).id for _ in range(3)] == [ids[1], ids[4], ids[2]]

    def test_who_started_longest_ago_is_next_whatever_became_of_it(self, store: JobStore) -> None:
        first = submit(store, letter(1, owner="a"), letter(2, owner="b"))
        for _ in first:
            store.complete(claimed(store), "1").result(10)
        ids = submit(store, letter(3, owner="b"), letter(4, owner="c"), letter(5, owner="a"))
        assert [claimed(store).id for _ in ids] == [ids[1], ids[2], ids[0]]

    def test_a_job_that_is_tried_again_has_had_its_turn(self, store: JobStore) -> None:
        ids = submit(store, *(letter(n, owner=who) for n, who in enumerate("aab")))
        taken = []
        for again in (False, True, False, True):
            job = claimed(store)
            taken.append(job.id)
            if again:
                store.cancel(job.id).result(10)
                assert store.retry(job.id, "b", 100).result(10).done
        assert taken == [ids[0], ids[2], ids[1], ids[2]]

    def test_lines_of_a_batch_come_after_their_owner_s_jobs(self, store: JobStore) -> None:
        values = {"name": "b", "endpoint": "", "completion_window": "", "status": "in_progress",
                  "input_file": "", "created_at": 1.0, "expires_at": 2.0, "owner": "a"}  # fmt: skip
        made = insert(batches).values(values).returning(batches.c.id)
        batch = store.database.write(lambda c: int(c.execute(made).scalar_one())).result(10)
        lines = [letter(n, owner="a", priority=2, batch_id=batch, line=n) for n in (1, 2)]
        ids = submit(store, *lines, letter(3, owner="a", priority=2))
        other = submit(store, letter(4, owner="b", priority=2))
        assert store.first_params("letter", "a").result(10) == letter(3).params
        assert [claimed(store).id for _ in range(4)] == [ids[2], *other, ids[0], ids[1]]

    def test_nothing_of_an_owner_that_is_not_in_force_is_claimed(self, store: JobStore) -> None:
        ids = submit(store, letter(1, owner="a"), letter(2, owner="b"), letter(3))
        store.in_force = lambda owner: owner != "a"
        assert store.first_owner("letter").result(10) == "b"
        assert [job.id for job in store.claim("letter", "w1", LEASE_S, 9).result(10)] == ids[1:]
        assert store.claim("letter", "w1", LEASE_S, owner="a").result(10) == []
        assert store.first_owner("letter").result(10) is None
        store.in_force = lambda owner: True
        assert claimed(store).id == ids[0]

    def test_what_revoked_keys_have_queued_is_cancelled_with_the_reason(
        self, store: JobStore
    ) -> None:
        ids = submit(store, *(letter(n, owner=who) for n, who in enumerate("aab")))
        running = claimed(store)
        assert store.cancel_of(["a", "z"]).result(10) == 1
        assert store.cancel_of(["a", "z"]).result(10) == 0
        gone = found(store, ids[1])
        assert (gone.status, gone.error) == ("cancelled", "its key was revoked")
        assert gone.finished_at is not None
        assert [found(store, one).status for one in (ids[0], ids[2])] == ["running", "queued"]
        assert store.complete(running, "1").result(10)

    many = False
    """Whether several programs may work on this database at once."""

    def test_a_claim_starts_an_attempt_under_a_lease(self, store: JobStore) -> None:
        submit(store, letter(1))
        job = claimed(store)
        assert (job.status, job.attempt, job.fence, job.worker) == ("running", 1, 1, "w1")
        assert job.started_at is not None
        assert job.lease_until is not None
        assert 0 < job.lease_until - job.started_at <= LEASE_S + 1

    def test_a_result_is_kept_in_its_own_column(self, store: JobStore) -> None:
        submit(store, letter(1))
        job = claimed(store)
        assert store.complete(job, '{"text":"Dear"}').result(10)
        done = found(store, job.id)
        assert (done.status, done.result, done.error) == ("completed", '{"text":"Dear"}', None)
        assert done.finished_at is not None
        assert done.lease_until is None

    def test_a_failure_is_kept_with_its_message_and_traceback(self, store: JobStore) -> None:
        submit(store, letter(1))
        job = claimed(store)
        assert store.fail(job, Failure("boom", "handler_failed", "Traceback ...")).result(10)
        done = found(store, job.id)
        assert (done.status, done.error, done.error_code) == ("failed", "boom", "handler_failed")
        assert (done.traceback, done.result) == ("Traceback ...", None)

    def test_a_job_ends_once(self, store: JobStore) -> None:
        submit(store, letter(1))
        job = claimed(store)
        assert store.complete(job, "1").result(10)
        assert not store.complete(job, "2").result(10)
        assert not store.fail(job, Failure("late")).result(10)
        assert found(store, job.id).result == "1"

    def test_a_job_that_is_given_back_keeps_its_place(self, store: JobStore) -> None:
        ids = submit(store, letter(1), letter(2))
        job = claimed(store)
        assert store.give_back(job, tried=False).result(10)
        again = claimed(store)
        assert (again.id, again.attempt, again.fence) == (ids[0], 1, 2)
        assert store.give_back(again, tried=True).result(10)
        assert claimed(store).attempt == 2

    def test_a_stage_is_seen_and_gone_with_the_next_attempt(self, store: JobStore) -> None:
        submit(store, letter(1))
        job = claimed(store)
        assert store.stage(job, "writing").result(10)
        assert found(store, job.id).stage == "writing"
        store.give_back(job, tried=True).result(10)
        assert not store.stage(job, "too late").result(10)
        assert claimed(store).stage is None

    def test_a_heartbeat_lengthens_the_leases_that_are_still_held(self, store: JobStore) -> None:
        ids = submit(store, letter(1), letter(2))
        jobs_held = store.claim("letter", "w1", LEASE_S, 2).result(10)
        expire(store)
        store.cancel(ids[1]).result(10)
        assert store.heartbeat("w1", LEASE_S).result(10) == {(ids[0], 1)}
        assert store.recover(Recovery(expired_only=True)).result(10) == 0
        assert store.complete(jobs_held[0], "1").result(10)
