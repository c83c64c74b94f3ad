"""A real browser, a real gateway on a free port, and nodes that do what they are told.

All of it lives in one event loop for the whole session, so that one browser serves every test of a
worker; its pages are used by one test after the other. After every test it is checked that no page
wrote an error into the console, broke the security policy, or asked anyone but the gateway.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import expect

from forebay.gateway.gateway import Gateway
from forebay.settings import Settings
from forebay.testing import Call, FakeNode, RawClient
from harness.preloaded import HeardCommand
from harness.tiny_model import write_tiny_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import Browser, ConsoleMessage, Error, Page, Request

LIMIT_S = 30.0  # only turns a hang into a failure
CHAT = "/v1/chat/completions"
OK: dict[str, object] = {"choices": []}
FAILED_LOAD = "Failed to load resource"
"""What the browser itself writes for every answer that is not 2xx, also for an expected one."""
TELL_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
"""
FORGET_AND_LEAVE = """() => {
  localStorage.clear();
  sessionStorage.clear();
  location.replace("about:blank");
}"""

expect.set_options(timeout=LIMIT_S * 1000)


class Pages:
    """Pages that tests use one after the other: a new one costs three processes of the browser.

    Between two tests a page is empty; as it went there by itself, it keeps its process. Its next
    gateway has the same port, hence the same origin: the files of the page, which browsers may
    keep, are loaded once. They are half of what opening the page costs. Storage begins empty.
    """

    def __init__(self, browser: Browser, port: int) -> None:
        self._browser = browser
        self.port = port
        self._resting: dict[str, list[Page]] = {}

    async def new(self, script: str = "", *, clock: bool = False, **options: Any) -> Page:
        """Return a page in a context of its own; with a `clock`, tests can move its time on."""
        context = await self._browser.new_context(**options)
        await context.add_init_script(TELL_VIOLATIONS + script)
        if clock:
            await context.clock.install()
        return await context.new_page()

    async def lend(self, stack: AsyncExitStack, **options: Any) -> Page:
        """Return a page that nobody uses, with these options, until the stack unwinds."""
        resting = self._resting.setdefault(repr(sorted(options.items())), [])
        page = resting.pop() if resting else await self.new(**options)
        size = page.viewport_size
        assert size is not None

        async def take_back() -> None:
            await page.unroute_all()
            async with page.expect_navigation(url="about:blank"):
                await page.evaluate(FORGET_AND_LEAVE)
            await page.context.clear_cookies()
            if page.viewport_size != size:
                await page.set_viewport_size(size)
            resting.append(page)

        stack.push_async_callback(take_back)
        return page


class Site:
    """One test's gateway, nodes and pages."""

    def __init__(self, pages: Pages, stack: AsyncExitStack, folder: Path) -> None:
        self.pages = pages
        self.stack = stack
        self.folder = folder
        self.port = 0
        self.complaints: list[str] = []
        """What pages wrote into their consoles as errors."""
        self.asked: list[str] = []
        """Every address that a page asked for."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def node(self, **options: Any) -> FakeNode:
        return await self.stack.enter_async_context(FakeNode(**options))

    async def start(self, *nodes: FakeNode | str, **settings: Any) -> Gateway:
        """Start a gateway in front of these nodes (or addresses), named gpu1, gpu2, ..."""
        urls = [node if isinstance(node, str) else node.url for node in nodes]
        listed = [{"name": f"gpu{i + 1}", "url": url} for i, url in enumerate(urls)]
        environ = settings.pop("environ", {})
        given: dict[str, Any] = {"nodes": listed, **settings}
        given["server"] = {"port": self.pages.port, **settings.get("server", {})}
        given["jobs"] = {"database": f"sqlite:///{self.folder}/jobs.db", **settings.get("jobs", {})}
        gateway = Gateway(Settings(**given), environ=environ)
        await self.stack.enter_async_context(gateway)
        self.port = gateway.port
        return gateway

    async def serve(self, *words: str, port: int = 0) -> HeardCommand:
        """Start `forebay serve` as a program of its own, and wait until it listens."""
        at = ("--port", str(port or self.pages.port))
        child = await HeardCommand.start("serve", *at, *words, cwd=self.folder)
        self.stack.push_async_callback(end, child)
        line = await says(child, "Forebay is listening on ")
        self.port = urlsplit(line.split()[-1]).port or 0
        return child

    async def open(self, *, language: str = "en-GB", script: str = "", **context: Any) -> Page:
        """Open the page in a context of its own, and wait for the first numbers."""
        page = await self.blank(language=language, script=script, **context)
        await page.goto(self.url)
        await expect(page.locator(".tile-waiting")).to_be_visible()
        return page

    async def blank(self, *, language: str = "en-GB", script: str = "", **context: Any) -> Page:
        """Return an empty page that is listened to."""
        options = {"locale": language, "reduced_motion": "reduce", **context}
        if script:  # which stays in the context
            page = await self.pages.new(script, **options)
            self.stack.push_async_callback(page.context.close)
        else:
            page = await self.pages.lend(self.stack, **options)
        for event, hear in (
            ("console", self._hear),
            ("pageerror", self._hear_error),
            ("request", self._hear_request),
        ):
            page.on(event, hear)  # type: ignore[call-overload] # one overload for each name
            self.stack.callback(page.remove_listener, event, hear)
        return page

    async def ask(self, **more: Any) -> RawClient:
        """Send a chat request on a connection of its own."""
        client = await RawClient.connect("127.0.0.1", self.port)
        await self.stack.enter_async_context(client)
        headers = more.pop("headers", {})
        body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], **more}
        await client.post(CHAT, body, headers)
        return client

    async def hold(self, node: FakeNode, **more: Any) -> Call:
        """Have one request run at a node until the test answers it."""
        await self.ask(**more)
        return await node.next_call()

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error" and FAILED_LOAD not in message.text:
            self.complaints.append(message.text)

    def _hear_error(self, error: Error) -> None:
        self.complaints.append(str(error))

    def _hear_request(self, request: Request) -> None:
        self.asked.append(request.url)

    def check(self) -> None:
        """Fail if a page complained, or asked anyone but its gateway."""
        assert self.complaints == []
        ours = {"127.0.0.1", "localhost"}
        assert [url for url in self.asked if urlsplit(url).hostname not in ours] == []


async def says(child: HeardCommand, what: str) -> str:
    """Wait until a program has said that, and return the line."""
    async with asyncio.timeout(LIMIT_S):
        while line := (await child.stderr.readline()).decode():
            if what in line:
                return line
    raise AssertionError(f"the program ended without saying {what!r}")


async def end(child: HeardCommand) -> None:
    """End a program, if it has not ended."""
    if child.returncode is None:
        child.kill()
    await child.communicate()


async def stream(call: Call, *words: str) -> None:
    """Answer a call at a node with these words, as a stream."""
    await call.start_stream()
    for word in words:
        await call.chunk(b'data: {"choices": [{"delta": {"content": "%b"}}]}\n\n' % word.encode())
    await call.chunk(b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n')
    await call.chunk(b"data: [DONE]\n\n")
    await call.end()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pages(browser: Browser) -> AsyncIterator[Pages]:
    with socket.socket() as reserved:  # as it never listens, gateways can bind to its port
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield Pages(browser, reserved.getsockname()[1])


@pytest_asyncio.fixture(loop_scope="session")
async def site(pages: Pages, tmp_path: Path) -> AsyncIterator[Site]:
    """Give the test its site; check at the end what must hold of every page."""
    async with AsyncExitStack() as stack:
        site = Site(pages, stack, tmp_path)
        yield site
    site.check()


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")
