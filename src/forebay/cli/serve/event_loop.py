"""The event loop that servers run on, and the signals that end them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop where there is one."""
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return None


def on_stop_signals(stop: Callable[[bool], None]) -> None:
    """Call `stop` at every SIGTERM and SIGINT: with False at the first, then with True: at once."""
    received = 0

    def count() -> None:
        nonlocal received
        received += 1
        stop(received > 1)

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, count)
