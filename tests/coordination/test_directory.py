"""Asking who has a ticket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from .crew import Crew

if TYPE_CHECKING:
    from harness.valkey_server import ValkeyServer


@pytest.mark.interpreted("a method cannot be replaced")
async def test_who_stops_asking_does_not_take_the_answer_from_others(
    valkey_server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Crew(valkey_server.url, 1) as crew:
        fleet = crew.hands[0].replica.fleet
        monkeypatch.setattr(crew.hands[0].replica, "send", lambda _: None)  # it is told below
        one = asyncio.create_task(fleet.owner_of("t"))
        two = asyncio.create_task(fleet.owner_of("t"))
        await asyncio.sleep(0)
        one.cancel()
        await asyncio.gather(one, return_exceptions=True)
        fleet.on_owner("t", "bbbbbbbb")
        assert await two == "bbbbbbbb"
