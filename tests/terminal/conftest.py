"""Scripted gateways, views and apps for the tests of the terminal view."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from forebay.clock import SystemClock
from forebay.sdk.status import read_hello, read_snapshot
from forebay.terminal.app import TopApp
from forebay.terminal.feed import Feed
from forebay.terminal.view import TopView
from forebay.testing import FakeClock

from .scripted_gateway import LIMIT_S, ScriptedGateway, hello, snapshot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from textual.pilot import Pilot

    from forebay.terminal.feed import Listener


class SilentFeed(Feed):
    """Brings nothing: the test says what there is to see."""

    async def run(self, listener: Listener) -> None:
        await asyncio.Event().wait()


def made_view(greeting: dict[str, Any] | None = None, **changed: Any) -> TopView:
    """Return a view that has been sent one snapshot."""
    view = TopView("http://127.0.0.1:7800")
    view.take_hello(read_hello(json.dumps(greeting or hello())))
    view.take_snapshot(read_snapshot(json.dumps(snapshot(**changed))))
    return view


async def drawn(
    view: TopView, cells: int = 80, rows: int = 24, *keys: str, is_ascii: bool = False
) -> list[str]:
    """Return what the screen shows, first and after each of these keys."""
    feed = SilentFeed(view.url, None, random.Random(1))
    app = TopApp(feed, view, FakeClock(), is_ascii=is_ascii)
    async with on_screen(app, (cells, rows)) as pilot:
        for _ in range(2):  # the first may come before every part knows its size
            app.draw()
            await pilot.pause()
        screens = [screen_text(app)]
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
            screens.append(screen_text(app))
    return screens


def made_app(url: str, key: str | None = None) -> TopApp:
    """Return the app as the command makes it."""
    return TopApp(Feed(url, key, random.Random(1)), TopView(url), SystemClock())


def on_screen(
    app: TopApp, size: tuple[int, int] = (80, 24)
) -> AbstractAsyncContextManager[Pilot[int]]:
    """Show the app on a screen of this size."""
    return app.run_test(size=size, notifications=True)


def screen_text(app: TopApp) -> str:
    """Return what is on the screen, without its styles."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


async def shows(pilot: Pilot[int], what: str, reached: Callable[[str], bool] | None = None) -> str:
    """Wait until the screen shows a text, or until something holds of it; return the screen."""
    app = pilot.app
    assert isinstance(app, TopApp)
    try:
        async with asyncio.timeout(LIMIT_S):
            while not (reached(screen_text(app)) if reached else what in screen_text(app)):
                await pilot.pause(0.02)
    except TimeoutError:
        raise AssertionError(f"{what!r} is not shown:\n{screen_text(app)}") from None
    return screen_text(app)


@pytest.fixture
async def gateway() -> AsyncIterator[ScriptedGateway]:
    """A gateway that does what the test says."""
    gateway = ScriptedGateway()
    await gateway.start()
    yield gateway
    await gateway.stop()
