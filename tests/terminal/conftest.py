"""Scripted gateways, views and apps for the tests of the terminal view."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from forebay.clock import SystemClock
from forebay.terminal.app import TopApp
from forebay.terminal.feed import Feed
from forebay.terminal.lines import text_of
from forebay.terminal.pen import Pen
from forebay.terminal.picture import draw
from forebay.terminal.values import read_hello, read_snapshot
from forebay.terminal.view import View

from .scripted_gateway import LIMIT_S, ScriptedGateway, hello, snapshot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from textual.pilot import Pilot


def made_view(greeting: dict[str, Any] | None = None, **changed: Any) -> View:
    """Return a view that has been sent one picture."""
    view = View("http://127.0.0.1:7800")
    view.take_hello(read_hello(json.dumps(greeting or hello())))
    view.take_snapshot(read_snapshot(json.dumps(snapshot(**changed))))
    return view


def drawn(view: View, cells: int = 80, rows: int = 24, *, ascii_only: bool = False) -> str:
    """Return a picture as text."""
    lines = draw(Pen(ascii_only=ascii_only), view, cells, rows)
    return "\n".join(text_of(line).rstrip() for line in lines)


def made_app(url: str, key: str | None = None) -> TopApp:
    """Return the app as the command makes it."""
    return TopApp(Feed(url, key, random.Random(1)), View(url), Pen(), SystemClock())


async def shows(pilot: Pilot[int], what: str, reached: Callable[[str], bool] | None = None) -> str:
    """Wait until the screen shows a text, or until something holds of it; return the screen."""
    app = pilot.app
    assert isinstance(app, TopApp)
    try:
        async with asyncio.timeout(LIMIT_S):
            while not (reached(app.screen_text()) if reached else what in app.screen_text()):
                await pilot.pause(0.02)
    except TimeoutError:
        raise AssertionError(f"{what!r} is not shown:\n{app.screen_text()}") from None
    return app.screen_text()


@pytest.fixture
async def gateway() -> AsyncIterator[ScriptedGateway]:
    """A gateway that does what the test says."""
    gateway = ScriptedGateway()
    await gateway.start()
    yield gateway
    await gateway.stop()
