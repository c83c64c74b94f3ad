"""Every asynchronous test runs on the loop that users run on; databases are real ones."""

from __future__ import annotations

import gc
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import psycopg
import pytest
import pytest_asyncio
import uvloop
from redis import Redis

from forebay.build import BUILD
from harness.forked_workers import run_in_workers
from harness.postgres_server import PostgresServer
from harness.valkey_server import ValkeyServer

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Generator, Iterator

    from playwright.async_api import Browser

hypothesis.settings.register_profile("forebay", deadline=None)  # how long it takes proves nothing
hypothesis.settings.load_profile("forebay")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it puts into the background with Ctrl-C ignored, and programs hand that
    # on: those that tests start and interrupt would never hear of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without collecting garbage: what this makes stays to the end.

    Nor is it looked at later, by every collection that a test causes.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take `--storms N`: long schedules of faults, N of them, instead of one short one.

    And `--workers N`: in N processes at once. And `--long`: those tests too that take long, and are
    of a kind that is there already. And `--compiled`: what is tested must be the compiled build,
    which PYTHONPATH names. And `--again`, with `--last-failed`: all of them have failed before.
    """
    parser.addoption("--storms", type=int, default=0, help="run N long storms")
    parser.addoption("--compiled", action="store_true", help="insist on the compiled build")
    parser.addoption("--workers", type=int, default=0, help="run tests in N forked workers")
    parser.addoption("--long", action="store_true", help="run those marked long, too")
    parser.addoption("--again", action="store_true", help="name and count what passes this time")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name the tests that failed and passed when they ran again, and how often each has done so.

    The counts are in pytest's cache. A test that has done so three times is mended or deleted.
    """
    if not config.getoption("--again") or config.cache is None:
        return
    counts = config.cache.get("forebay/passed-again", {})
    names = {report.nodeid for report in terminalreporter.stats.get("passed", ())}
    for name in sorted(names):
        counts[name] = counts.get(name, 0) + 1
        terminalreporter.write_line(f"failed, and passed when run again ({counts[name]}): {name}")
    config.cache.set("forebay/passed-again", counts)


def pytest_configure(config: pytest.Config) -> None:
    if BUILD == "compiled":  # mypyc's own code throws into coroutines as Python 3.12 deprecates it
        ignored = r"ignore:the \(type, exc, tb\) signature of throw:DeprecationWarning"
        config.addinivalue_line("filterwarnings", ignored)


SLOW = ("browser", "real", "fleet", "end_to_end", "docs", "sdk", "guard", "demo", "simulation")
"""Folders whose tests start programs or compute for long: they come first, and one by one, lest a
worker has them left at last."""


def _group_of(nodeid: str) -> str:
    """Return which tests run in one worker: slow ones go one by one, others by file.

    A browser for each worker costs 30 s of CPU more; a llama.cpp and the clients of others, which
    take two seconds to import, 4 s.
    """
    file = nodeid.partition("::")[0]
    folder = file.split("/")[1]
    if folder == "browser" or file == "tests/docs/test_site.py":
        return "browser"
    if folder == "real" or file == "tests/nodes/sim/test_sim_node.py":
        return "real"
    return nodeid if folder in SLOW else file


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count: int = session.config.getoption("--workers")
    if not count or not session.items or session.testsfailed or session.config.option.collectonly:
        return None  # to pytest's own loop
    groups: dict[str, list[pytest.Item]] = {}
    for item in session.items:
        groups.setdefault(_group_of(item.nodeid), []).append(item)
    return run_in_workers(session, list(groups.values()), count)


def _is_on_postgres(item: pytest.Item) -> bool:
    return "postgres" in item.name or "postgres_server" in getattr(item, "fixturenames", ())


@pytest.hookimpl(tryfirst=True)  # before those are left out whose markers nobody asked for
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = len(Path(__file__).parent.parts)
    order = {name: place for place, name in enumerate(SLOW)}
    rank = {path: order.get(path.parts[here], len(SLOW)) for path in {item.path for item in items}}
    items.sort(key=lambda item: rank[item.path])
    for item in filter(_is_on_postgres, items):
        item.add_marker("postgres")
    if not config.getoption("--long"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="takes long: make long"))
    if BUILD == "compiled":
        for item in items:
            if mark := item.get_closest_marker("interpreted"):
                item.add_marker(pytest.mark.skip(reason=f"compiled: {mark.args[0]}"))


@pytest.fixture(autouse=True, scope="module")
def _home_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep each module's data, and settings that nobody named, away from those of whoever tests."""
    home = tmp_path_factory.mktemp("home")
    (home / "state" / "forebay").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(home / "state"))
        patch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        for variable in ("STATE_DIRECTORY", "FOREBAY_CONFIG", "FOREBAY_URL", "FOREBAY_API_KEY"):
            patch.delenv(variable, raising=False)
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A real PostgreSQL of this session's own; the address of its database."""
    with PostgresServer() as server:
        yield server.url


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """An empty database that nobody else is connected to."""
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        connection.execute("DROP SCHEMA public CASCADE")  # a new database takes ten times as long
        connection.execute("CREATE SCHEMA public")
    return postgres_server


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

    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.fail("no browser: install 'chromium-headless-shell', 'chromium', or Google Chrome")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()
