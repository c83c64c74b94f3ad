"""What a job loop knows is queued, whatever the order in which the store's answers arrive."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

from forebay.errors import StoreFailed
from forebay.jobs import loop as job_loop
from forebay.jobs.job import Change, Failure, StoredJob
from forebay.jobs.loop import Backlog, JobLoop
from forebay.jobs.store.change_bus import ChangeBus
from forebay.testing import FakeClock

if TYPE_CHECKING:
    import pytest

    from forebay.jobs.job import Status
    from forebay.jobs.store.job_store import JobStore

LETTER = ("letter", "")


class SlowStore:
    """A store whose answers the test gives, in any order."""

    def __init__(self) -> None:
        self.changes = ChangeBus(shared=False)
        self.counts: list[Future[dict[tuple[str, str], int]]] = []
        self.claims: list[Future[list[StoredJob]]] = []

    def owner_depths(self) -> Future[dict[tuple[str, str], int]]:
        self.counts.append(Future())
        return self.counts[-1]

    def claim(self, *_: object, **_options: object) -> Future[list[StoredJob]]:
        self.claims.append(Future())
        return self.claims[-1]

    def heartbeat(self, *_: object) -> Future[Any]:
        return Future()

    def in_force(self, owner: str) -> bool:
        return owner != "revoked"


class Desk:
    """An executor that claims when the test says so."""

    def __init__(self) -> None:
        self.store = SlowStore()
        self.clock = FakeClock()
        store = cast("JobStore", self.store)
        self.loop: JobLoop[Backlog] = JobLoop(store, "w1", 30.0, 5.0, self.clock, None)
        self.updates = 0

    async def start(self, depths: dict[tuple[str, str], int]) -> Desk:
        starting = asyncio.ensure_future(self.loop.start(self))
        await turn()
        self.store.counts.pop().set_result(depths)
        await starting
        return self

    def queued(self) -> int:
        return self.loop.backlogs[LETTER].queued

    def begin_claim(self) -> asyncio.Future[Any]:
        backlog = self.loop.backlogs[LETTER]
        backlog.claiming += 1
        return asyncio.ensure_future(self.loop.claim(backlog))

    def line_of(self, queue: str, owner: str) -> str | None:
        return "" if queue == "letter" else None

    def make_backlog(self, queue: str, owner: str) -> Backlog:
        return Backlog(queue, owner)

    def update(self, backlogs: object) -> None:
        self.updates += 1

    def polled(self, depths: object) -> None: ...

    def hold(self) -> None: ...

    def unstorable(self, error: BaseException) -> Failure:
        raise AssertionError

    async def abandon(self, claimed: object) -> None: ...


async def turn() -> None:
    """Let the loop come to rest."""
    for _ in range(10):
        await asyncio.sleep(0)


def job() -> StoredJob:
    given = dict.fromkeys(StoredJob.__struct_fields__)
    return StoredJob(**cast("Any", given | {"id": 1, "fence": 1, "status": "running"}))


def change(status: Status, before: Status | None, *, here: bool = True) -> Change:
    return Change(1, "letter", "letter", status, before, here=here)


async def test_jobs_of_others_and_of_revoked_keys_are_not_counted() -> None:
    desk = await Desk().start({LETTER: 2, ("letter", "revoked"): 3, ("report", ""): 4})
    assert {key: one.queued for key, one in desk.loop.backlogs.items()} == {LETTER: 2}


async def test_a_job_that_is_announced_while_the_store_counts_is_not_forgotten() -> None:
    desk = await Desk().start({LETTER: 1})
    desk.loop.look()
    await turn()
    desk.store.changes.announce([change("queued", None)])
    await turn()
    desk.store.counts.pop().set_result({LETTER: 1})  # it may have counted before
    await turn()
    assert desk.queued() == 2


async def test_a_claim_answered_after_the_store_has_counted_takes_no_job_of_others() -> None:
    desk = await Desk().start({LETTER: 2})
    claiming = desk.begin_claim()
    await turn()
    desk.loop.look()
    await turn()
    desk.store.counts.pop().set_result({LETTER: 1})  # committed before it counted
    await turn()
    desk.store.changes.announce([change("running", "queued")])
    desk.store.claims.pop().set_result([job()])
    assert await claiming is not None
    assert desk.queued() == 1


async def test_an_empty_claim_leaves_what_was_announced_meanwhile() -> None:
    desk = await Desk().start({LETTER: 2})
    claiming = desk.begin_claim()
    await turn()
    desk.store.changes.announce([change("running", "queued", here=False)])
    desk.store.changes.announce([change("queued", None)])
    await turn()
    desk.store.claims.pop().set_result([])
    assert await claiming is None
    assert desk.queued() == 1


async def test_a_store_that_hangs_is_asked_once_more_at_most() -> None:
    desk = await Desk().start({})
    for _ in range(20):
        desk.clock.advance(5.0)
        desk.loop.look()
        await turn()
    assert len(desk.store.counts) == 1
    desk.store.counts[0].set_result({})
    await turn()
    assert len(desk.store.counts) == 2


async def test_nothing_is_claimed_while_the_store_is_away_until_it_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(job_loop, "PAUSE_S", 1000.0)
    desk = await Desk().start({LETTER: 1})
    claiming = desk.begin_claim()
    await turn()
    desk.store.claims.pop().set_exception(StoreFailed("away"))
    assert await claiming is None
    assert "pausing job dispatch for 30 s: away" in caplog.text
    assert await desk.begin_claim() is None
    assert (desk.queued(), desk.store.claims) == (1, [])
    seen = desk.updates
    looking = desk.loop.look()
    await turn()
    desk.store.counts.pop().set_result({LETTER: 1})
    assert await looking
    await turn()
    assert desk.loop.may_claim()
    assert desk.updates > seen
