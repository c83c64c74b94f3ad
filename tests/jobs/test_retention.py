"""What ended long ago is deleted, in small steps; what is needed stays."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from forebay.errors import NotAllowed
from forebay.jobs import TaskRunner, retention
from forebay.jobs.job import Failure, NewJob
from forebay.jobs.retention import Pruned, Retention
from forebay.jobs.store.schema import JOBS
from forebay.testing import FakeClock

from .desk import Desk, line
from .script import LIMIT_S, idle

if TYPE_CHECKING:
    from collections.abc import Callable

    from .script import Script

LONG_AGO_S = 31 * 86_400


@pytest.fixture(autouse=True)
def no_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the pauses, but not the steps."""
    monkeypatch.setattr(retention, "REST_S", 0.0)
    monkeypatch.setattr(retention, "REST_FACTOR", 0.0)


def made(desk: Desk, days: float = 30.0) -> Retention:
    return Retention(desk.store, days, desk.files)


def age(desk: Desk, seconds: float = LONG_AGO_S) -> None:
    """Make everything older."""
    desk.sql(f"UPDATE jobs SET finished_at = finished_at - {seconds}")
    desk.sql(f"UPDATE files SET created_at = created_at - {seconds}")
    for column in ("completed_at", "failed_at", "expired_at", "cancelled_at"):
        desk.sql(f"UPDATE batches SET {column} = {column} - {seconds}")


def leap(desk: Desk, days: float) -> None:
    """Have the database's clock leap ahead: by it, all that is kept is that much older."""
    age(desk, days * 86_400)
    desk.sql(f"UPDATE slewed_clocks SET at = at - {days * 86_400}")


def ended_jobs(desk: Desk, count: int) -> None:
    """Make jobs that completed, failed and were cancelled, in turn."""
    added = desk.store.add([NewJob("chat", "{}", n, "model:m", "m") for n in range(count)]).result()
    for number, job in enumerate(desk.claim(count)):
        match number % 3:
            case 0:
                assert desk.store.complete(job, "{}").result()
            case 1:
                assert desk.store.fail(job, Failure("no", "node_failed")).result()
            case _:
                assert desk.store.cancel(job.id).result()
    assert len(added) == count


def finished_batch(desk: Desk) -> Any:
    batch = desk.create([line("a"), line("b")])
    desk.move_on()
    desk.run(1)
    desk.fail()
    desk.move_on()
    return desk.get(batch)


def test_ended_jobs_are_deleted_in_steps_and_the_others_stay(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "STEP_ROWS", 4)
    ended_jobs(desk, 10)
    age(desk)
    desk.store.add([NewJob("chat", '{"n": 1}', n, "model:m", "m") for n in range(3)]).result()
    (running,) = desk.claim()
    desk.sql("UPDATE jobs SET created_at = 0")  # however long they wait or run
    pruner = made(desk)
    steps: list[Counter[tuple[str, Any]]] = []
    pruner.on_deleted = steps.append
    assert pruner.prune() == Pruned(jobs=10)
    assert max(step.total() for step in steps) <= 4
    assert sum(steps, Counter()) == Counter(
        {("chat", "completed"): 4, ("chat", "failed"): 3, ("chat", "cancelled"): 3}
    )
    left = desk.store.list().result()
    assert Counter(job.status for job in left) == {"queued": 2, "running": 1}
    assert desk.store.complete(running, "{}").result()
    assert pruner.prune() == Pruned(), "it has only just ended"


def test_an_ended_batch_goes_with_its_files_and_an_open_one_stays_whole(desk: Desk) -> None:
    batch = finished_batch(desk)
    names = (batch.input_file, batch.output_file, batch.error_file)
    age(desk)
    waiting = desk.create([line("c")])
    desk.move_on()
    desk.sql("UPDATE files SET created_at = 0 WHERE name = :name", name=waiting.input_file)
    assert made(desk).prune() == Pruned(batches=1, files=3)
    assert desk.batches.get(batch.name, "").result() is None
    assert [row.batch_id for row in desk.sql("SELECT batch_id FROM batch_models")] == [waiting.id]
    for name in names:
        assert desk.files.get(name, "").result() is None
        with pytest.raises(FileNotFoundError):
            desk.files.read(name)
    assert desk.run() == 1
    desk.move_on()
    assert desk.get(waiting).status == "completed"
    assert desk.content(desk.get(waiting).output_file)[0]["custom_id"] == "c"


def test_a_file_that_a_younger_batch_names_stays_and_a_forgotten_upload_goes(desk: Desk) -> None:
    batch = finished_batch(desk)
    forgotten = desk.upload(b"x")
    desk.sql("UPDATE files SET created_at = 0")
    assert made(desk).prune() == Pruned(files=1)
    assert desk.files.get(forgotten.name, "").result() is None
    assert len(desk.content(batch.output_file)) == 1
    assert len(desk.content(batch.error_file)) == 1


def test_a_clock_that_leaps_ahead_has_nothing_deleted_in_a_rush(desk: Desk) -> None:
    """A day for each hour that the gateway runs, over restarts, too."""
    clock = FakeClock()

    def started() -> Retention:
        return Retention(desk.store, 30.0, desk.files, clock=clock)

    ended_jobs(desk, 3)
    assert started().prune() == Pruned()
    leap(desk, 40)
    for run_h in (0, 1, 20, 0, 8):
        pruner = started()
        assert pruner.prune() == Pruned()
        clock.advance(run_h * 3600.0)
        pruner.start()
        pruner.stop()  # which keeps how far it came
    pruner = started()
    assert pruner.prune() == Pruned()
    clock.advance(2 * 3600.0)
    assert pruner.prune() == Pruned(jobs=3)


def test_a_clock_that_leaps_back_does_not_end_deleting_for_ever(desk: Desk) -> None:
    clock = FakeClock()
    pruner = Retention(desk.store, 30.0, desk.files, clock=clock)
    ended_jobs(desk, 3)
    assert pruner.prune() == Pruned()
    age(desk)
    for days in (400, 20_000):  # to another year, and to 1970, as without a battery
        leap(desk, -days)
        for _ in range(5):
            assert pruner.prune() == Pruned()
            clock.advance(3600.0)
        leap(desk, days)
    clock.advance(5 * 3600.0)
    assert pruner.prune() == Pruned(jobs=3)


def test_a_first_move_that_was_rolled_back_ends_no_deleting(desk: Desk) -> None:
    pruner = made(desk)
    pruner.prune()
    desk.sql("DROP TABLE slewed_clocks")  # as when the transaction that made it failed
    ended_jobs(desk, 3)
    age(desk)
    assert pruner.prune() == Pruned(jobs=3)


def test_zero_days_keep_everything(desk: Desk) -> None:
    ended_jobs(desk, 3)
    age(desk, 10_000 * 86_400)
    pruner = made(desk, 0)
    pruner.start()
    assert pruner._thread is None
    pruner.stop()


def test_lines_that_a_crash_left_behind_go_with_their_batch(desk: Desk) -> None:
    batch = desk.create([line("a"), line("b")])
    desk.move_on()
    desk.sql("UPDATE batches SET status = 'failed', failed_at = 1")
    assert made(desk).prune().batches == 1
    assert desk.sql("SELECT count(*) FROM jobs")[0][0] == 0
    assert desk.batches.get(batch.name, "").result() is None


def test_one_gateway_deletes_at_a_time(open_desk: Callable[..., Desk], postgres_url: str) -> None:
    here = Desk(postgres_url, None)
    ended_jobs(here, 3)
    age(here)
    with here.database.connect() as other:  # a session of its own
        other.execute(text("SELECT pg_advisory_lock(:key)"), {"key": retention.LOCK})
        assert made(here).prune() == Pruned()
        other.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": retention.LOCK})
    assert made(here).prune() == Pruned(jobs=3)
    here.close()


def test_a_large_file_in_rows_is_deleted_part_by_part(postgres_url: str) -> None:
    desk = Desk(postgres_url, None)
    desk.upload(b"x" * (70 * 256 * 1024))
    desk.sql("UPDATE files SET created_at = 0")
    assert made(desk).prune() == Pruned(files=1)
    assert desk.sql("SELECT count(*) FROM file_parts")[0][0] == 0
    desk.close()


def test_a_database_of_the_version_before_gets_the_indexes(
    open_desk: Callable[..., Desk],
) -> None:
    old = open_desk()
    for index in ("jobs_ended", "jobs_of_model", "batches_ended", "batches_input",
                  "batches_output", "batches_error", "files_by_age",
                  "jobs_next_of_owner"):  # fmt: skip
        old.sql(f"DROP INDEX {index}")
    old.sql("UPDATE forebay_schema SET version = 2")
    ended_jobs(old, 3)
    old.close()
    new = open_desk()
    assert new.sql("SELECT version FROM forebay_schema")[0][0] == JOBS.version
    age(new)
    assert made(new).prune() == Pruned(jobs=3)
    for index in ("jobs_ended", "jobs_next_of_owner"):
        new.sql(f"DROP INDEX {index}")  # it was there


def test_a_database_of_the_version_before_learns_the_models_of_its_batches(
    open_desk: Callable[..., Desk],
) -> None:
    old = open_desk()
    batch = old.create([line("a", "m"), line("b", "n"), line("c", "n")])
    old.move_on()
    old.sql("DROP TABLE batch_models")
    old.sql("UPDATE forebay_schema SET version = 3")
    old.close()
    new = open_desk()
    for model in "mn":
        page = new.batches.list("", 10, None, model=model).result()
        assert page is not None
        assert [one.id for one in page.batches] == [batch.id]


def test_a_runner_deletes_its_ended_jobs_only_where_it_is_told_to(
    script: Callable[..., Script], database_url: str
) -> None:
    first = script(database_url)
    first.add("letter")
    first.runner.start()
    (number,) = first.submit("letter", {})
    idle(first.runner)
    old = text(f"UPDATE jobs SET finished_at = finished_at - {LONG_AGO_S}")
    first.runner._store.database.write(lambda c: c.execute(old).rowcount).result()
    first.runner.shutdown(LIMIT_S)

    keeping = script(database_url)
    keeping.add("letter")
    keeping.runner.start()
    assert keeping.runner._retention._thread is None
    assert keeping.runner.get(number) is not None
    keeping.runner.shutdown(LIMIT_S)

    other = script(database_url, retention_days=60)
    other.add("letter")
    other.runner.start()
    other.runner._retention.stop(LIMIT_S)  # after its first round
    assert other.runner.get(number) is not None, "it is not 60 days old"
    other.runner.shutdown(LIMIT_S)

    deleting = script(database_url, retention_days=30)
    deleting.add("letter")
    deleting.runner.start()
    deleting.runner._retention.prune()
    assert deleting.runner.get(number) is None


def test_a_runner_takes_no_retention_that_makes_no_sense(database_url: str) -> None:
    with pytest.raises(NotAllowed, match="retention_days"):
        TaskRunner(database_url, retention_days=0)
