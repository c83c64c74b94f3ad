"""Run a guard in this process, from start to shutdown."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from forebay.cli.invocation import bracketed
from forebay.cli.output.console import counted, say
from forebay.cli.serve.event_loop import loop_factory, on_stop_signals
from forebay.gateway.logs import set_up_logging
from forebay.guard.guard import Guard
from forebay.settings.addresses import is_loopback_name

if TYPE_CHECKING:
    from forebay.guard.guard import GuardOptions

logger = logging.getLogger("forebay.guard")


def run_guard(options: GuardOptions) -> None:
    """Guard until told to stop; raises OSError when it cannot listen."""
    set_up_logging()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_guard(options))


async def _guard(options: GuardOptions) -> None:
    guard = Guard(options)
    stop = asyncio.Event()

    def stop_or_hurry(at_once: bool) -> None:
        if at_once:
            guard.hurry()
        stop.set()

    on_stop_signals(stop_or_hurry)
    try:
        await guard.start()
        _greet(guard)
        await stop.wait()
        logger.info("stopping", extra={"running": guard.slots.in_flight})
    finally:
        await guard.stop()


def _greet(guard: Guard) -> None:
    """Say where it is, what it guards and who knows it."""
    options, backend = guard.options, guard.backend
    told = backend.told
    kind = backend.kind or "a server of unknown kind"
    slots = counted(guard.slots.size, "slot")
    say("")
    here = f"http://{bracketed(options.host)}:{guard.port}"
    say(f"Forebay guards {options.backend} on {here} with {slots}")
    if told.state == "offline":
        say(f"  backend: does not answer yet ({backend.last_error}); retrying")
    else:
        say(f"  backend: {kind}, {told.state}, {counted(len(told.models), 'model')}")
    for url in options.gateways:
        say(f"  registers with {url} as {guard.name}, reached at {guard.url}")
    if not options.gateways:
        say(f'  no --gateway: use it as a node, [[nodes]] url = "{guard.url}"')
    if not options.token and not is_loopback_name(options.host):
        say("  warning: without --token-env, anyone who can reach it may use the backend")
    say("")
