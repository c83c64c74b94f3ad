"""Several gateways on one PostgreSQL: whoever waits for the other's rows never waits for ever."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from forebay.jobs.job import NewJob

from .desk import answer_of, line
from .script import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from forebay.jobs.job import Job
    from forebay.storage.database import Database

    from .desk import Desk


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


def two_batches(open_desk: Callable[..., Desk]) -> tuple[Desk, Desk, list[Job], list[Job]]:
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

    def end(desk: Desk, place: int, first: Job, last: Job) -> list[Future[Any]]:
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
