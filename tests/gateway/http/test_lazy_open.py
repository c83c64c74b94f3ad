"""What cannot be opened is retried, and the log says so once."""

from __future__ import annotations

import asyncio
import logging

import pytest

from forebay.errors import StoreFailed
from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.http import lazy_open as openings
from forebay.gateway.http.lazy_open import RETRY_S, LazyOpen
from forebay.testing import FakeClock


async def test_what_lasts_is_logged_once_for_each_reason_and_once_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reasons = ["pid 7 has it", "pid 7 has it", "pid 7 has it", "pid 8 has it", "pid 8 has it"]
    left = iter(reasons)
    tried = 0

    async def do_open() -> str:
        nonlocal tried
        tried += 1
        if reason := next(left, ""):
            raise StoreFailed(reason)
        return "open"

    clock = FakeClock()
    opening = LazyOpen("the session database", do_open, clock)
    caplog.set_level(logging.INFO, "forebay.gateway")
    await opening.try_now()
    while opening.value is None:
        clock.advance(RETRY_S)
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
    assert tried == len(reasons) + 1
    waits = "the session database cannot be opened, retrying"
    assert [record.getMessage() for record in caplog.records] == [
        f"{waits}: pid 7 has it",
        f"{waits}: pid 8 has it",
        "the session database is open now",
    ]


async def test_a_database_that_hangs_holds_up_neither_the_start_nor_callers_nor_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(openings, "ANSWER_S", 0.05)
    monkeypatch.setattr(openings, "STOP_S", 0.05)
    closed = asyncio.Event()

    async def do_open() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()
        return "open"

    opening = LazyOpen("the session database", do_open, FakeClock())
    async with asyncio.timeout(30.0):
        await opening.try_now()
        with pytest.raises(HttpError) as refused:
            await opening.ready()
        assert refused.value.problem.code == "store_unavailable"
        assert not closed.is_set()  # it may come yet
        assert not await opening.stop()
    assert closed.is_set()
