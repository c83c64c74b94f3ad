"""A run from its first look at the server to its last answer."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

import msgspec

from forebay.clock import SystemClock
from forebay.errors import BackendFailed
from forebay.load.answers import Answer, plain
from forebay.load.pool import Pool
from forebay.load.run import LoadRun, Measured
from forebay.load.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forebay.clock import TimerHandle
    from forebay.load.arrivals import Arrival
    from forebay.load.plan import Plan
    from forebay.load.run import Live

LOOK_S = 0.25
"""How often the progress is shown."""
FIRST_LOOK_S = 10.0
LIST_BYTES_MAX = 4 * 1024 * 1024
"""Of models: some ten thousand of them."""


class Unreachable(BackendFailed):
    """Nothing answers at the address, or nothing that could be loaded."""

    code = "unreachable"


class Refused(BackendFailed):
    """The server does not let us in."""

    code = "refused"


class Watcher(Protocol):
    """Who is told how far it is."""

    def update(self, live: Live) -> None:
        """Take how far it is."""
        ...


class FineClock(SystemClock):
    """The machine's clock, with the loop's timers: uvloop's own clock moves by milliseconds."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def call_at(self, at_s: float, callback: Callable[[], None]) -> TimerHandle:
        """Call back at a time of `monotonic_s`, to the millisecond."""
        return self._loop.call_later(max(0.0, at_s - self.monotonic_s()), callback)


class _Model(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[_Model]


class _Look(Answer):
    """Keeps the answer's body, which is small, to be read."""

    def __init__(self) -> None:
        super().__init__(Sample(0.0, "", ""), 0.0)
        self.content = bytearray()

    def body(self, data: bytes, now_s: float) -> None:
        super().body(data, now_s)
        if len(self.content) + len(data) > LIST_BYTES_MAX:
            self._fail("answer_too_large")
            self.content.clear()
        else:
            self.content += data


async def models_of(url: str, key: str | None) -> list[str] | None:
    """Return the models that a server lists; None where it has no such list.

    Raises Unreachable and Refused.
    """
    pool = Pool(url, key, FineClock())
    look = _Look()
    try:
        async with asyncio.timeout(FIRST_LOOK_S):
            await pool.send("GET", "/v1/models", {}, b"", look)
    except TimeoutError:
        raise Unreachable(f"{url} does not answer within {FIRST_LOOK_S:.0f} s") from None
    finally:
        await pool.close()
    status = look.sample.status
    if status == 0:
        raise Unreachable(f"nothing answers at {url} ({look.message or look.sample.code})")
    if status in (401, 403):
        raise Refused(f"{url} says {status}: {look.message or look.sample.code}")
    return _listed(bytes(look.content)) if status < 300 else None


def _listed(content: bytes) -> list[str] | None:
    try:
        found = msgspec.json.decode(content, type=_List)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return [plain(model.id) for model in found.data]


async def load(plan: Plan, planned: list[Arrival], key: str | None, watcher: Watcher) -> Measured:
    """Run the plan; Ctrl-C ends it early, with what was measured until then."""
    clock = FineClock()
    run = LoadRun(plan, planned, Pool(plan.url, key, clock), clock)

    async def watch() -> None:
        while True:
            run.live.now_s = run.now_s()
            watcher.update(run.live)
            await asyncio.sleep(LOOK_S)

    with _on_interrupt(run.stop):
        running = asyncio.create_task(run.run())
        watching = asyncio.create_task(watch())
        try:
            return await running
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching


@contextmanager
def _on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Have the first Ctrl-C call that; the second ends the program as ever."""
    loop = asyncio.get_running_loop()

    def once() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop()

    try:
        loop.add_signal_handler(signal.SIGINT, once)
    except (NotImplementedError, RuntimeError, ValueError):  # not in the main thread, or on Windows
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
