"""What cannot be opened is waited for, and the log says so once."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from forebay.errors import StoreFailed
from forebay.gateway.opening import AGAIN_S, Opening
from forebay.testing import FakeClock

if TYPE_CHECKING:
    import pytest


async def test_what_lasts_is_logged_once_for_each_reason_and_once_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reasons = ["pid 7 has it", "pid 7 has it", "pid 7 has it", "pid 8 has it", "pid 8 has it"]
    left = iter(reasons)
    tried = 0

    async def do_open() -> None:
        nonlocal tried
        tried += 1
        if reason := next(left, ""):
            raise StoreFailed(reason)

    clock = FakeClock()
    opening = Opening("the session database", do_open, clock)
    caplog.set_level(logging.INFO, "forebay.gateway")
    await opening.try_now()
    while not opening.is_open:
        clock.advance(AGAIN_S)
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
    assert tried == len(reasons) + 1
    waits = "the session database cannot be opened, and is waited for"
    assert [record.getMessage() for record in caplog.records] == [
        f"{waits}: pid 7 has it",
        f"{waits}: pid 8 has it",
        "the session database is open now",
    ]
