"""Run the gateway in this process, from start to shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import resource
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from forebay import __version__
from forebay.build import describe_build
from forebay.cli.invocation import local_url, with_url
from forebay.cli.output.console import counted, say
from forebay.cli.output.text import printable
from forebay.cli.serve.event_loop import loop_factory, on_stop_signals
from forebay.clock import LoopClock
from forebay.errors import BackendFailed, InvariantBroken
from forebay.gateway.default_node import OWN_NAMES, DefaultNodes, find_default_nodes
from forebay.gateway.gateway import Gateway
from forebay.gateway.hot.access_log import AccessLog
from forebay.gateway.hot.access_record import json_lines, short_lines
from forebay.gateway.hot.user_hash import data_folder, load_key
from forebay.gateway.logs import outlet_of, set_up_logging
from forebay.gateway.traces import open_traces
from forebay.settings.environment import current_environment
from forebay.settings.places import DATABASE_HERE, make_data_folder, state_folder
from forebay.settings.review import risks

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from forebay.cli.serve.arguments import ServeArguments
    from forebay.gateway.workers.seat import Seat
    from forebay.nodes.backend import Backend
    from forebay.settings import Settings

logger = logging.getLogger("forebay.serve")

T = TypeVar("T")

NAMES_SHOWN = 10  # of nodes that are offline for the same reason when the gateway starts
SWITCH_S = 0.0005
"""How long a thread that reads a large body may hold up the event loop at a time."""
M_ARENA_MAX = -8
"""The option of glibc's mallopt() for the number of its heaps."""


def run_gateway(settings: Settings, arguments: ServeArguments) -> None:
    """Serve until told to stop.

    Raises InvariantBroken where `--self-check` finds that the parts do not agree.
    """
    prepare_process()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve_until_stopped(settings, arguments))


def prepare_process() -> None:
    """Set up what is the same for the whole process."""
    set_up_logging()
    _allow_many_connections()
    _share_one_heap()
    sys.setswitchinterval(SWITCH_S)


def _allow_many_connections() -> None:
    """Take as many open files as the system lets us: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # then the usual limit holds
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _share_one_heap() -> None:
    """Have all threads allocate from one heap, where the C library is glibc.

    By default each thread gets one of its own, and keeps what it freed: 12 MiB, once a thread has
    imported the database. The threads run one at a time under the GIL, so they rarely contend.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


async def serve_until_stopped(
    settings: Settings, arguments: ServeArguments, seat: Seat | None = None
) -> None:
    """Serve until told to stop, alone or as one of several workers, and stop."""
    clock = LoopClock(asyncio.get_running_loop())
    encode = short_lines if sys.stdout.isatty() else json_lines
    log = None
    with contextlib.suppress(OSError):  # who wants to keep something there will say so
        make_data_folder(settings.jobs.database)
    if settings.server.access_log:
        folder = data_folder(settings.jobs.database, settings.jobs.files_folder)
        log = AccessLog(outlet_of("stdout"), encode, partial(load_key, folder))
    gateway = Gateway(
        settings,
        clock=clock,
        log=log,
        traces=open_traces(current_environment()),
        read_settings=arguments.read,
        seat=seat,
    )
    stop = asyncio.Event()
    _obey(gateway, stop)
    faults: list[str] = []
    if arguments.self_check:
        _check(gateway, stop, faults)
    default_node = DefaultNodeTask(gateway, arguments, stop)
    try:
        default_node.announce()
        if gateway.role is None:
            await gateway.start()  # before any model is loaded: the port may be taken
            await default_node.provide()
        else:
            await _unless_stopped(gateway.start(), stop)
            default_node.provide_when(gateway.role.led)
        gc.collect()
        gc.freeze()  # what exists now lives as long as we do: no need to look at it again
        await stop.wait()
        logger.info("stopping", extra={"running": len(gateway.parts.relay.exchanges)})
    finally:
        await gateway.stop()
        await default_node.stop()
    if faults:
        raise InvariantBroken(f"the self-check failed: {'; '.join(faults)}")


class DefaultNodeTask:
    """Finds or starts the nodes of a gateway that has none configured, and says what there is."""

    def __init__(self, gateway: Gateway, arguments: ServeArguments, stop: asyncio.Event) -> None:
        self._gateway = gateway
        self._gguf = arguments.model_file
        self._simulate = arguments.simulate
        self._stop = stop
        self._is_needed = arguments.needs_default_nodes(gateway.parts.settings)
        self._defaults: DefaultNodes | None = None
        self._tasks: list[asyncio.Future[None]] = []

    def announce(self) -> None:
        """Have requests wait for what will be found."""
        if self._gateway.parts.leads:
            self._gateway.parts.nodes.expecting = self._is_needed

    def provide_when(self, led: asyncio.Event) -> None:
        """Begin once this worker leads: one of them has the nodes for all."""

        async def provide() -> None:
            await led.wait()
            try:
                await self.provide()
            except BackendFailed as error:  # another worker could not either
                self._gateway.parts.nodes.expecting = False
                logger.error("there is no node: %s", error)

        self._tasks.append(asyncio.ensure_future(provide()))

    async def provide(self) -> None:
        """Find or start nodes, where none is configured; greet."""
        nodes = self._gateway.parts.nodes
        if self._is_needed:
            nodes.expecting = True
            for name in OWN_NAMES:  # of a worker that led before this one, and has died with them
                nodes.remove(name)
            finding = find_default_nodes(self._gguf, say, simulate=self._simulate)
            self._defaults = await _unless_stopped(finding, self._stop)
        if self._defaults is not None:
            for node in self._defaults.settings:
                nodes.replace(node)
            with contextlib.suppress(TimeoutError):
                await nodes.first_probes(5.0)
        nodes.expecting = False
        _greet(self._gateway, self._defaults)
        self._tasks.append(asyncio.ensure_future(_watch(self._gateway, self._defaults)))

    async def stop(self) -> None:
        """Stop what was started; may be called twice."""
        for task in self._tasks:
            task.cancel()
        if self._defaults is not None:
            await self._defaults.stop()


def _check(gateway: Gateway, stop: asyncio.Event, faults: list[str]) -> None:
    """Stop at once when the parts of the gateway do not agree, and remember why."""

    def broken(found: list[str]) -> None:
        faults.extend(found)
        logger.error("the self-check failed", extra={"faults": found})
        gateway.hurry()
        stop.set()

    gateway.check_itself(broken)


async def _watch(gateway: Gateway, defaults: DefaultNodes | None) -> None:
    """Start the embedded model again should it die; it then has another port."""
    if defaults is None or defaults.embedded is None:
        return
    (node,) = defaults.settings
    embedded = defaults.embedded

    def restarted() -> None:
        gateway.parts.nodes.replace(node.model_copy(update={"url": embedded.url}))

    await embedded.keep_running(restarted)


async def _unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """Wait for the work, but not longer than until someone wants us to stop."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not working.done():
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return None
    return working.result()


def _obey(gateway: Gateway, stop: asyncio.Event) -> None:
    """Stop and reload by signals: the first SIGTERM or SIGINT drains, the second stops at once.

    A worker does what its parent says, which has the signals; one that cannot lead ends.
    """

    def stop_or_hurry(at_once: bool) -> None:
        if at_once:
            gateway.hurry()
        stop.set()

    seat, reload = gateway.parts.seat, gateway.parts.reload
    if seat is None or gateway.role is None:
        on_stop_signals(stop_or_hurry)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    else:
        seat.link.obey(stop_or_hurry)
        seat.link.on_reload = reload
        gateway.role.on_failure = lambda _: stop_or_hurry(True)


def _greet(gateway: Gateway, defaults: DefaultNodes | None) -> None:
    """Say where it is and what to try next."""
    settings = gateway.parts.settings
    url = local_url(settings.server, gateway.port, "localhost")
    models = gateway.parts.nodes.models("openai")
    say("")
    say(f"Forebay is listening on {url}")
    say(f"  version {__version__}, {describe_build()}")
    if defaults is not None:
        say(f"  nodes: {defaults.explanation}")
    for line in _about_nodes(gateway.parts.nodes):
        say(line)
    if words := _about_data(settings):
        say(f"  data: {words}")
    if settings.guard.token_env:
        say(f"  guards register with: forebay node --backend URL --gateway {url} --token-env VAR")
    for risk in risks(settings):
        say(f"  warning: {risk}")
    fleet = gateway.parts.membership.fleet
    if fleet is not None and fleet.picture().mode == "cut_off":
        say("  warning: the store at coordination.url is unreachable: 503 until it is back")
    model = models[0] if models else "MODEL"
    key = ' -H "Authorization: Bearer $KEY"' if gateway.parts.keys else ""
    say("")
    say("Try it:")
    say(f"  curl {url}/v1/chat/completions{key} -H 'Content-Type: application/json' \\")
    say(f'    -d \'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello!"}}]}}\'')
    say(f"  OPENAI_BASE_URL={url}/v1  for any OpenAI client;  open {url}/ in a browser")
    chat = with_url("chat", url) + (" --key-env VAR" if gateway.parts.keys else "")
    say(f"  {chat}  to talk with it in a terminal")
    say("")


def _about_nodes(nodes: Iterable[Backend]) -> Iterable[str]:
    """Describe each node, those that are offline for the same reason together."""
    offline: dict[str, list[str]] = {}
    for backend in nodes:
        told = backend.told
        if told.state == "offline":
            offline.setdefault(backend.last_error or "no answer yet", []).append(backend.name)
            continue
        is_found = told.slots_kind == "found"
        slots = "finding how many slots" if is_found else counted(told.slots, "slot")
        yield f"  node {backend.name}: {told.state}, {slots}, {counted(len(told.models), 'model')}"
    for why, names in offline.items():
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        yield f"  offline: {', '.join(names[:NAMES_SHOWN])}{more} ({printable(why)})"


def _about_data(settings: Settings) -> str:
    """Say where data is kept; nothing where the settings say so."""
    if "database" in settings.jobs.model_fields_set:
        return ""
    folder = state_folder()
    if settings.jobs.database != DATABASE_HERE or folder == Path():
        return str(folder.absolute())
    return f"./forebay.db, because it exists; without it, {folder} would be used"
