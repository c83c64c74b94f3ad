"""Several gateways on one PostgreSQL: whoever waits for the other's rows never waits for ever."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import update

from forebay.errors import StoreFailed
from forebay.jobs.job import NewJob
from forebay.jobs.store.recovery import Recovery
from forebay.jobs.store.schema import jobs
from forebay.storage import database as database_module
from forebay.testing.job_store_contract import expire

from ..desk import answer_of, line
from ..script import LIMIT_S, idle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from forebay.jobs.job import StoredJob
    from forebay.storage.database import Database

    from ..desk import Desk
    from ..script import Script


@pytest.fixture
def database_url(postgres_url: str) -> str:
    """SQLite has one gateway."""
    return postgres_url


@pytest.mark.parametrize(
    "avoided",
    ["hashagg,sort,hashjoin,mergejoin,material", "indexscan,bitmapscan,hashjoin,mergejoin", ""],
)
def test_a_claim_takes_what_it_asked_for_whatever_the_planner_makes_of_it(
    desk: Desk, avoided: str
) -> None:
    """PostgreSQL may ask an inner query again for every row, and each time lock other ones."""
    desk.store.add([NewJob("chat", str(n), queue="model:m") for n in range(50)]).result()
    desk.sql("ANALYZE jobs")
    for way in filter(None, avoided.split(",")):
        desk.sql(f"SET enable_{way} = off")
    assert [job.params for job in desk.claim(1)] == ["0"]
    assert [job.params for job in desk.claim(3)] == ["1", "2", "3"]


def test_whoever_had_a_model_last_serves_its_queue_for_a_day(desk: Desk) -> None:
    def served_for(gateway: str) -> bool:
        return desk.store.is_served("model:m", but_by=gateway).result()

    assert not served_for("a")
    desk.store.note_served(["model:m", "model:n"], "a").result()
    assert (served_for("a"), served_for("b")) == (False, True)
    desk.store.note_served(["model:m"], "b").result()
    assert (served_for("a"), served_for("b")) == (True, False)
    desk.sql("UPDATE served_queues SET until = until - 86400")
    assert (served_for("a"), served_for("b")) == (False, False)
    desk.store.note_served(["model:k"], "a").result()
    assert desk.sql("SELECT queue FROM served_queues") == [("model:k",)]


class Crossing:
    """Two groups of writes, each of which has begun before either goes on."""

    def __init__(self) -> None:
        self._begun = (threading.Event(), threading.Event())

    def gate(self, mine: int) -> Callable[[Any], None]:
        def work(_: Any) -> None:
            self._begun[mine].set()
            assert self._begun[1 - mine].wait(LIMIT_S)

        return work


def grouped(database: Database, ask: Callable[[], list[Future[Any]]]) -> list[Future[Any]]:
    """Have everything that is asked for be one transaction."""
    held, asked = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        held.set()
        assert asked.wait(LIMIT_S)

    database.write(hold)
    assert held.wait(LIMIT_S)
    futures = ask()
    asked.set()
    return futures


def two_batches(
    open_desk: Callable[..., Desk],
) -> tuple[Desk, Desk, list[StoredJob], list[StoredJob]]:
    one, two = open_desk(keeper="k1"), open_desk(keeper="k2")
    for model in ("a", "b"):
        one.create([line(f"{model}{i}", model) for i in range(2)])
    one.move_on()
    return one, two, one.claim(2, "model:a"), one.claim(2, "model:b")


def test_lines_of_two_batches_end_in_opposite_orders_without_a_deadlock(
    open_desk: Callable[..., Desk],
) -> None:
    one, two, a, b = two_batches(open_desk)
    crossing = Crossing()

    def end(desk: Desk, place: int, first: StoredJob, last: StoredJob) -> list[Future[Any]]:
        return grouped(
            desk.database,
            lambda: [
                desk.store.complete(first, answer_of(first)),
                desk.database.write(crossing.gate(place)),
                desk.store.complete(last, answer_of(last)),
            ],
        )

    asked = end(one, 0, a[0], b[0]) + end(two, 1, b[1], a[1])
    assert [future.result(LIMIT_S) for future in asked] == [True, None, True] * 2
    one.move_on()
    done = one.sql("SELECT status, completed, failed FROM batches ORDER BY id")
    assert [tuple(row) for row in done] == [("completed", 2, 0)] * 2


def test_jobs_that_one_gateway_ends_and_another_cancels_in_opposite_order_cost_nobody_an_error(
    open_desk: Callable[..., Desk],
) -> None:
    one, two = open_desk(), open_desk()
    one.store.add([NewJob("chat", f'{{"n": {n}}}', queue="model:m") for n in range(2)]).result()
    first, last = one.claim(2)
    crossing = Crossing()
    ends = grouped(
        one.database,
        lambda: [
            one.store.complete(first, "1"),
            one.database.write(crossing.gate(0)),
            one.store.complete(last, "2"),
        ],
    )
    cancels = grouped(
        two.database,
        lambda: [
            two.store.cancel(last.id),
            two.database.write(crossing.gate(1)),
            two.store.cancel(first.id),
        ],
    )
    ended = [ends[0].result(LIMIT_S), ends[2].result(LIMIT_S)]
    before = [cancels[2].result(LIMIT_S), cancels[0].result(LIMIT_S)]
    for job, won, seen in zip((first, last), ended, before, strict=True):
        now = one.store.get(job.id).result()
        assert now is not None
        assert now.status == ("completed" if won else "cancelled")
        assert seen.status == ("completed" if won else "running")


# -- being told


@pytest.fixture
def listening(desk: Desk) -> Iterator[tuple[Desk, SimpleQueue[Any]]]:
    """A gateway that hears the others, and what it heard."""
    heard: SimpleQueue[Any] = SimpleQueue()
    changes = desk.store.changes
    changes.resync_listeners.append(lambda: heard.put("look"))
    changes.batch_listeners.append(lambda: heard.put("batches"))
    changes.listen(desk.database)
    assert [heard.get(timeout=LIMIT_S) for _ in range(2)] == ["look", "batches"]
    changes.listeners.append(heard.put)
    yield desk, heard
    changes.stop_listening()


def test_what_another_gateway_does_to_a_job_is_heard_once_it_is_committed(
    listening: tuple[Desk, SimpleQueue[Any]], open_desk: Callable[..., Desk]
) -> None:
    _, heard = listening
    other = open_desk()
    other.store.add([NewJob("chat", "{}", queue="model:m")]).result()
    (job,) = other.claim()
    other.store.stage(job, "halfway").result()
    other.store.cancel(job.id).result()
    seen = [heard.get(timeout=LIMIT_S) for _ in range(4)]
    assert [(one.before, one.status) for one in seen] == [
        (None, "queued"), ("queued", "running"), ("running", "running"), ("running", "cancelled")
    ]  # fmt: skip
    assert [one.stage for one in seen] == [None, None, "halfway", None]
    assert {one.id for one in seen} == {job.id}
    assert (seen[3].fence, seen[1].waited_s) == (job.fence, None)
    assert not any(one.here for one in seen)


def test_ones_own_changes_are_heard_once(listening: tuple[Desk, SimpleQueue[Any]]) -> None:
    desk, heard = listening
    desk.store.add([NewJob("chat", "1", queue="model:m")]).result()
    desk.sql("SELECT pg_notify('forebay_jobs', '[\"someone\",[],true,false]')")
    assert heard.get(timeout=LIMIT_S).here
    assert heard.get(timeout=LIMIT_S) == "batches"
    assert heard.empty()


def test_a_transaction_that_fails_tells_nothing(
    listening: tuple[Desk, SimpleQueue[Any]], open_desk: Callable[..., Desk]
) -> None:
    _, heard = listening
    other = open_desk()
    asked = grouped(
        other.database,
        lambda: [
            other.store.add([NewJob("chat", "1", queue="model:m")]),
            other.database.write(lambda connection: connection.exec_driver_sql("SELECT 1/0")),
        ],
    )
    assert asked[1].exception(LIMIT_S) is not None
    asked[0].result(LIMIT_S)  # which ran again, by itself
    assert heard.get(timeout=LIMIT_S).status == "queued"
    other.sql("SELECT pg_notify('forebay_jobs', '')")
    assert heard.get(timeout=LIMIT_S) == "look"


def test_much_at_once_says_only_to_look(
    listening: tuple[Desk, SimpleQueue[Any]], open_desk: Callable[..., Desk]
) -> None:
    _, heard = listening
    other = open_desk()
    long = "é" * 300
    other.store.add([NewJob("chat", str(n), queue=f"model:{long}") for n in range(20)]).result()
    assert heard.get(timeout=LIMIT_S) == "look"
    assert heard.get(timeout=LIMIT_S) == "batches"
    other.store.add([NewJob("chat", str(n), queue="model:m") for n in range(100, 301)]).result()
    assert heard.get(timeout=LIMIT_S) == "look"


def test_batches_that_others_make_and_lines_to_run_or_stop_are_heard_but_no_more(
    listening: tuple[Desk, SimpleQueue[Any]], open_desk: Callable[..., Desk]
) -> None:
    _, heard = listening
    other = open_desk(keeper="k2")
    made = other.create([line(f"c{i}") for i in range(3)])
    other.move_on()
    assert heard.get(timeout=LIMIT_S) == "batches"
    assert [heard.get(timeout=LIMIT_S).status for _ in range(3)] == ["queued"] * 3
    done, running = other.claim(2)
    assert other.store.complete(done, answer_of(done)).result()
    other.batches.cancel(made.name, "")
    assert heard.get(timeout=LIMIT_S) == "batches"
    stopped = heard.get(timeout=LIMIT_S)
    assert (stopped.id, stopped.fence, stopped.status) == (running.id, running.fence, "cancelled")


def test_whoever_was_deaf_for_a_while_looks(
    listening: tuple[Desk, SimpleQueue[Any]], open_desk: Callable[..., Desk]
) -> None:
    _, heard = listening
    open_desk().sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE query LIKE 'LISTEN%' AND datname = current_database()"
    )
    assert [heard.get(timeout=LIMIT_S) for _ in range(2)] == ["look", "batches"]


# -- frozen


def test_a_gateway_frozen_in_the_middle_of_a_transaction_does_not_keep_its_rows(
    open_desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its locks would outlast every lease: nobody takes over what is locked."""
    with monkeypatch.context() as impatient:
        impatient.setattr(database_module, "IDLE_MS", 1_000)
        frozen = open_desk()
    other = open_desk()
    frozen.store.add([NewJob("chat", "{}", queue="model:m")]).result()
    (job,) = frozen.claim()
    expire(frozen.store)
    locked, thawed = threading.Event(), threading.Event()

    def freeze(connection: Any) -> None:
        connection.execute(update(jobs).values(stage="halfway"))
        locked.set()
        assert thawed.wait(LIMIT_S)

    written = frozen.database.write(freeze)
    assert locked.wait(LIMIT_S)
    recovery = Recovery(retry=True, attempts=3, expired_only=True)
    looks = (other.store.recover(recovery).result(LIMIT_S) for _ in range(20_000))
    assert any(looks), "its rows are still locked"
    (taken,) = other.claim()
    thawed.set()
    assert isinstance(written.exception(LIMIT_S), StoreFailed)
    assert not frozen.store.complete(job, '"late"').result(LIMIT_S)
    assert other.store.complete(taken, '"mine"').result(LIMIT_S)


# -- order


def test_gateways_that_claim_at_once_get_every_job_once_and_in_order(
    open_desk: Callable[..., Desk],
) -> None:
    desks = [open_desk() for _ in range(3)]
    new = [NewJob("chat", str(n), queue="model:m", priority=n % 3) for n in range(60)]
    desks[0].store.add(new).result()

    def claim_all(desk: Desk) -> list[StoredJob]:
        taken: list[StoredJob] = []
        while some := desk.claim():
            taken += some
        return taken

    with ThreadPoolExecutor(3) as pool:
        taken = list(pool.map(claim_all, desks))
    orders = [[(job.priority, job.id) for job in one] for one in taken]
    assert all(order == sorted(order) for order in orders)
    assert sorted(place for order in orders for place in order) == sorted(
        {place for order in orders for place in order}
    )
    assert sum(map(len, orders)) == 60


# -- programs that know different types


def test_a_dead_runners_job_is_left_to_those_who_know_its_type(
    script: Callable[..., Script], open_desk: Callable[..., Desk], postgres_url: str
) -> None:
    """Else an app's jobs would fare as the settings of somebody else's gateway say."""
    stranger = script(postgres_url)  # which fails what is interrupted
    stranger.add("letter")
    other = open_desk()
    (added,) = other.store.add([NewJob("report", '"mine"')]).result()
    other.claim(queue="report")
    expire(other.store)
    assert stranger.runner.reset_running() == 0
    stranger.runner.start()
    app = script(postgres_url, on_interrupt="retry", lease_seconds=0.5)
    app.add("report")
    app.runner.start()
    app.begun("report")
    idle(app.runner)
    found = other.store.get(added.id).result()
    assert found is not None
    assert (found.status, found.attempt) == ("completed", 2)
