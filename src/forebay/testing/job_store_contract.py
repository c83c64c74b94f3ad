"""What every job store must do, whatever database is under it: taking in, and running.

Subclass `JobStoreContract` and provide the fixtures `store`, and `open_store` for a second
program. How jobs end otherwise is in `job_endings_contract`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from forebay.jobs.job import Failure, NewJob
from forebay.jobs.store.recovery import Recovery
from forebay.testing.job_endings_contract import JobEndingsContract
from forebay.testing.job_store_steps import (
    LEASE_S,
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
