"""The keeper: wakes when something happens, goes on after a restart, and stops when told."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, BinaryIO

from forebay.jobs.batches import keeper as batch_keeper
from forebay.jobs.batches.keeper import BatchKeeper

from ..desk import Desk, counts, line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    import pytest

    from forebay.jobs.batches.batch import StoredBatch

LIMIT_S = 20.0  # only turns a hang into a failure


@asynccontextmanager
async def kept(desk: Desk) -> AsyncIterator[BatchKeeper]:
    keeper = BatchKeeper(desk.batches, desk.steps)
    await keeper.start()
    try:
        yield keeper
    finally:
        await keeper.stop()


async def until(desk: Desk, made: StoredBatch, status: str) -> StoredBatch:
    async with asyncio.timeout(LIMIT_S):
        while True:
            found = await asyncio.wrap_future(desk.batches.get(made.name, made.owner))
            assert found is not None
            if found.status == status:
                return found


async def run(count: int, *desks: Desk) -> None:
    """Run lines as they are loaded."""
    async with asyncio.timeout(LIMIT_S):
        while count:
            each = (asyncio.to_thread(desk.run, min(count, 10)) for desk in desks)
            count -= sum(await asyncio.gather(*each))


async def test_a_batch_goes_from_its_making_to_its_end_by_itself(
    open_desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_keeper, "POLL_S", 3600.0)  # what happens here is heard of
    desk = open_desk()
    async with kept(desk):
        made = await asyncio.to_thread(desk.create, [line("a"), line("b")])
        await until(desk, made, "in_progress")
        await run(2, desk)
        done = await until(desk, made, "completed")
        assert counts(done) == ("completed", 2, 2, 0)
        other = await asyncio.to_thread(desk.create, [line("a")])
        await until(desk, other, "in_progress")
        await asyncio.to_thread(desk.batches.cancel, other.name, "")
        await until(desk, other, "cancelled")


async def test_a_start_goes_on_with_whatever_it_finds(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk()
    loaded, fresh = desk.create([line("a")]), desk.create([line("b")])
    desk.steps.advance(loaded.id)
    desk.run(1)
    async with kept(desk):
        await until(desk, loaded, "completed")
        await until(desk, fresh, "in_progress")


async def test_a_batch_expires_by_itself(
    open_desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_keeper, "POLL_S", 3600.0)
    desk = open_desk()
    async with kept(desk) as keeper:
        made = await asyncio.to_thread(desk.create, [line("a")])
        await until(desk, made, "in_progress")
        # Long enough for the keeper to fall asleep again, and short for a test.
        await asyncio.to_thread(
            desk.sql, "UPDATE batches SET expires_at = expires_at - 86400 + 0.5"
        )
        keeper.wake()
        done = await until(desk, made, "expired")
        assert counts(done) == ("expired", 1, 0, 1)


async def test_what_another_gateway_did_is_found(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_keeper, "POLL_S", 0.05)
    first = Desk(postgres_url, tmp_path / "files", "k1")
    second = Desk(postgres_url, tmp_path / "files", "k2")
    try:
        async with kept(first):
            made = await asyncio.to_thread(second.create, [line("a")])
            await until(first, made, "in_progress")
            await run(1, second)
            await until(first, made, "completed")
    finally:
        first.close()
        second.close()


async def test_two_keepers_share_the_batches_of_one_database(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_keeper, "POLL_S", 0.02)
    desks = [Desk(postgres_url, tmp_path / "files", f"k{i}") for i in range(2)]
    try:
        async with kept(desks[0]), kept(desks[1]):
            made = [
                await asyncio.to_thread(desks[i % 2].create, [line(f"{i}-{j}") for j in range(20)])
                for i in range(6)
            ]
            for one in made:
                await until(desks[0], one, "in_progress")
            await run(120, *desks)
            for one in made:
                done = await until(desks[1], one, "completed")
                assert counts(done) == ("completed", 20, 20, 0)
                assert len(desks[0].content(done.output_file)) == 20
        assert len(list(desks[0].files.folder.iterdir())) == 12, "each was written once"
    finally:
        for desk in desks:
            desk.close()


async def test_a_batch_that_does_not_move_does_not_hold_up_the_others(
    open_desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(batch_keeper, "RETRY_S", 0.05)
    desk = open_desk()
    stuck, well = desk.create([line("a")]), desk.create([line("b")])
    real = desk.files.read
    broken = True

    def no_space(name: str) -> BinaryIO:
        if name == stuck.input_file and broken:
            raise OSError(28, "No space left on device")
        return real(name)

    monkeypatch.setattr(desk.files, "read", no_space)
    async with kept(desk):
        await until(desk, well, "in_progress")
        assert (await until(desk, stuck, "validating")).status == "validating"
        assert "No space left" in caplog.text
        broken = False
        await until(desk, stuck, "in_progress")


async def test_a_bug_in_a_step_is_logged_and_ends_nothing(
    open_desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    desk = open_desk(may_use=lambda owner, model: bool(1 / (owner != "odd")))
    odd, well = desk.create([line("a")], "odd"), desk.create([line("b")])
    async with kept(desk):
        await until(desk, well, "in_progress")
        await until(desk, odd, "validating")
    assert "ZeroDivisionError" in caplog.text


async def test_start_and_stop_may_be_called_twice_and_again(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk()
    keeper = BatchKeeper(desk.batches, desk.steps)
    await keeper.stop()
    for _ in range(2):
        await keeper.start()
        await keeper.start()
        made = await asyncio.to_thread(desk.create, [line("a")])
        await until(desk, made, "in_progress")
        await keeper.stop()
        await keeper.stop()
    assert desk.store.changes.listeners == [desk._hear]  # only the one that was there before
    keeper.wake()


async def test_a_stop_ends_work_between_two_lines_and_gives_the_lease_back(
    open_desk: Callable[..., Desk],
) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def may_use(owner: str, model: str) -> bool:
        loop.call_soon_threadsafe(begun.set)
        desk.steps.stopping.wait(LIMIT_S)
        return True

    desk = open_desk(may_use=may_use)
    made = desk.create([line("a"), line("b")])
    async with kept(desk):
        await begun.wait()
    assert desk.get(made).status == "validating"
    assert desk.sql("SELECT keeper FROM batches")[0][0] == ""
