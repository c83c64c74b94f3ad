"""Running the gateway in this process, from its first to its last moment."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import sys
from typing import TYPE_CHECKING

from forebay.cli.invocation import local_url, with_url
from forebay.cli.output.console import counted, say
from forebay.cli.serve.event_loop import loop_factory
from forebay.clock import LoopClock
from forebay.errors import InvariantBroken
from forebay.gateway.default_node import DefaultNodes, find_default_nodes
from forebay.gateway.gateway import Gateway
from forebay.gateway.hot.access_log import AccessLog
from forebay.gateway.hot.access_record import json_lines, short_lines
from forebay.gateway.logs import set_up_logging
from forebay.settings import SettingsError
from forebay.settings.review import risks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from forebay.settings import Settings

logger = logging.getLogger("forebay.serve")

SWITCH_S = 0.0005
"""How long a thread that reads a large body may hold up the event loop at a time."""


def run_gateway(
    settings: Settings, read: Callable[[], Settings], gguf: Path | None, *, self_check: bool
) -> None:
    """Serve until told to stop; `read` reads the settings anew.

    Raises InvariantBroken where `self_check` finds that the parts do not agree.
    """
    set_up_logging()
    _allow_many_connections()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(settings, read, gguf, self_check=self_check))


def _allow_many_connections() -> None:
    """Take as many open files as the system lets us: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # then the usual limit holds
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve(
    settings: Settings, read: Callable[[], Settings], gguf: Path | None, *, self_check: bool
) -> None:
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    encode = short_lines if sys.stdout.isatty() else json_lines
    log = AccessLog(sys.stdout.buffer, clock, encode) if settings.server.access_log else None
    sys.setswitchinterval(SWITCH_S)
    defaults: DefaultNodes | None = None
    gateway = Gateway(settings, clock=clock, log=log, read_settings=read)
    stop = asyncio.Event()
    _on_signals(gateway, stop)
    faults: list[str] = []
    if self_check:
        _check(gateway, stop, faults)
    try:
        gateway.parts.nodes.expecting = gguf is not None or not (
            settings.nodes or settings.guard.token_env  # those are told where their nodes are
        )
        await gateway.start()  # before any model is loaded: the port may be taken
        if gateway.parts.nodes.expecting:
            defaults = await _unless_stopped(find_default_nodes(gguf, say), stop)
        if defaults is not None:
            for node in defaults.settings:
                gateway.parts.nodes.add(node)
            with contextlib.suppress(TimeoutError):
                await gateway.parts.nodes.first_probes(5.0)
        gateway.parts.nodes.expecting = False
        gc.collect()
        gc.freeze()  # what exists now lives as long as we do: no need to look at it again
        _greet(gateway, defaults)
        watching = asyncio.ensure_future(_watch(gateway, defaults))
        await stop.wait()
        watching.cancel()
        logger.info("stopping", extra={"running": len(gateway.parts.relay.exchanges)})
    finally:
        await gateway.stop()
        if defaults is not None:
            await defaults.stop()
    if faults:
        raise InvariantBroken(f"the self-check failed: {'; '.join(faults)}")


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


async def _unless_stopped(search: object, stop: asyncio.Event) -> DefaultNodes | None:
    """Wait for the search, but not longer than until someone wants us to stop."""
    assert asyncio.iscoroutine(search)
    searching = asyncio.ensure_future(search)
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({searching, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not searching.done():
        searching.cancel()
        await asyncio.gather(searching, return_exceptions=True)
        return None
    result: DefaultNodes = searching.result()
    return result


def _on_signals(gateway: Gateway, stop: asyncio.Event) -> None:
    """The first SIGTERM or SIGINT drains, the second stops at once; SIGHUP reloads."""
    loop = asyncio.get_running_loop()

    def stop_or_hurry() -> None:
        if stop.is_set():
            gateway.hurry()
        stop.set()

    def reload() -> None:
        try:
            changed = gateway.parts.live.reload()
            logger.info("settings reloaded", extra={"changed": changed})
        except SettingsError as error:
            logger.error("settings NOT reloaded, the old ones stay: %s", error)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_or_hurry)
    loop.add_signal_handler(signal.SIGHUP, reload)


def _greet(gateway: Gateway, defaults: DefaultNodes | None) -> None:
    """Say where it is and what to try next."""
    settings = gateway.parts.settings
    url = local_url(settings.server, gateway.port, "localhost")
    models = gateway.parts.nodes.models("openai")
    say("")
    say(f"Forebay is listening on {url}")
    if defaults is not None:
        say(f"  nodes: {defaults.explanation}")
    for backend in gateway.parts.nodes:
        told = backend.told
        say(
            f"  node {backend.name}: {told.state}, {counted(told.slots, 'slot')}, "
            f"{counted(len(told.models), 'model')}"
        )
    if settings.guard.token_env:
        say(f"  guards register with: forebay node --backend URL --gateway {url} --token-env VAR")
    for risk in risks(settings):
        say(f"  warning: {risk}")
    fleet = gateway.parts.membership.fleet
    if fleet is not None and fleet.picture().mode == "cut_off":
        say("  warning: the store of coordination.url is out of reach: 503 until it is back")
    model = models[0] if models else "MODEL"
    key = ' -H "Authorization: Bearer $KEY"' if gateway.parts.keys else ""
    say("")
    say("Try it:")
    say(f"  curl {url}/v1/chat/completions{key} -H 'Content-Type: application/json' \\")
    say(f'    -d \'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello!"}}]}}\'')
    say(f"  OPENAI_BASE_URL={url}/v1  for any OpenAI client;  open {url}/ in a browser")
    say(f"  {with_url('chat', url)}  to talk with it in a terminal")
    say("")
