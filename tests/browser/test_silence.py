"""A stream that goes silent, and a page that nobody looks at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

import pytest
from playwright.async_api import expect

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

    from .conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

HIDE = """
window.asIfHidden = false;
Object.defineProperty(document, "hidden", { get: () => window.asIfHidden });
window.hide = (hidden) => {
  window.asIfHidden = hidden;
  document.dispatchEvent(new Event("visibilitychange"));
};
"""


class Wire:
    """Passes bytes on between a browser and a gateway, until it is cut without a word."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._streams: list[asyncio.Event] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def fall_silent(self) -> None:
        """Pass on nothing more of the streams that there are; newer ones work."""
        for passing in self._streams:
            passing.clear()

    async def _join(self, reader: StreamReader, writer: StreamWriter) -> None:
        passing = asyncio.Event()
        passing.set()
        there = await asyncio.open_connection("127.0.0.1", self._target)
        for pair in ((reader, there[1]), (there[0], writer)):
            task = asyncio.create_task(self._carry(*pair, passing))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(
        self, reader: StreamReader, writer: StreamWriter, passing: asyncio.Event
    ) -> None:
        try:
            while data := await reader.read(65536):
                if b"GET /events" in data:
                    self._streams.append(passing)
                await passing.wait()
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


async def test_a_stream_that_goes_silent_is_noticed_and_opened_anew(site: Site) -> None:
    await site.start(await site.node())
    async with Wire(site.port) as wire:
        site.port = wire.port
        page = await site.open()
        state = page.locator("#live-state")
        await expect(state).to_have_text("Live")
        wire.fall_silent()
        await expect(page.locator("#live-age")).to_contain_text("last heard")
        await expect(page.locator("body")).to_have_attribute("data-old", "yes")
        await expect(page.locator("body")).not_to_have_attribute("data-old", "yes")
        await expect(state).to_have_text("Live")


async def test_a_page_that_nobody_looks_at_gives_its_connection_back(site: Site) -> None:
    gateway = await site.start(await site.node())
    page = await site.open(script=HIDE, clock=True)
    state = page.locator("#live-state")
    await expect(state).to_have_text("Live")
    await page.evaluate("hide(true)")
    await page.clock.fast_forward(16_000)
    await expect(state).to_have_text("Paused while hidden")
    async with asyncio.timeout(10):
        while gateway.parts.dashboard_feed.subscribers:  # noqa: ASYNC110 - told by a socket that closes
            await asyncio.sleep(0)
    await page.evaluate("hide(false)")
    await expect(state).to_have_text("Live")
