"""GPU load and memory through NVML, where there is a driver and the node is on this machine."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from ipaddress import ip_address
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from forebay.nvml import read_devices

LIMIT_S = 0.5
"""A reading takes 15 ms on an H200, the first 110; a stuck driver must not hold up a probe."""


def is_loopback(url: str) -> bool:
    """Say whether the address is this machine's own, without asking any name server.

    >>> is_loopback("http://localhost:11434"), is_loopback("http://[::1]:8080")
    (True, True)
    >>> is_loopback("http://gpu1:11434"), is_loopback("http://10.0.0.7:8000")
    (False, False)
    """
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class GpuReading(Struct, frozen=True):
    """This machine's GPUs at one moment."""

    load: float
    """Of the busiest, 0 to 1: which node uses which GPU is unknown, and a node is as slow as the
    GPU that it waits for."""
    used_bytes: int = 0
    """Memory in use on all of them together, by anyone."""
    total_bytes: int = 0


class GpuMeter:
    """Read how busy and how full this machine's GPUs are; None wherever that cannot be known.

    Readings run in a daemon thread of their own, one at a time: a driver that hangs costs one
    thread for good, and neither the loop nor the shutdown waits for it.
    """

    def __init__(self, measure: Callable[[], GpuReading | None] | None = None) -> None:
        self._measure = measure or nvml_reading
        self._thread: threading.Thread | None = None
        self._last: GpuReading | None = None

    async def read(self, url: str, limit_s: float = LIMIT_S) -> GpuReading | None:
        """Return what the driver says; None for a node elsewhere. Never raises.

        While a reading is under way, that is what it said the last time.
        """
        if not is_loopback(url):
            return None
        if self._thread is not None and self._thread.is_alive():
            return self._last
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[GpuReading | None] = loop.create_future()

        def settle(reading: GpuReading | None) -> None:
            if not answer.done():
                answer.set_result(reading)

        def read() -> None:
            reading = self._measured()
            with contextlib.suppress(RuntimeError):  # the loop has closed: nobody is waiting
                loop.call_soon_threadsafe(settle, reading)

        self._thread = threading.Thread(target=read, name="gpu-meter", daemon=True)
        self._thread.start()
        try:
            async with asyncio.timeout(limit_s):
                self._last = await answer
        except TimeoutError:
            self._last = None
        return self._last

    def _measured(self) -> GpuReading | None:
        # A driver may fail in any way it likes; nothing is known then, and that is all.
        with contextlib.suppress(Exception):
            reading = self._measure()
            return (
                None if reading is None else replace(reading, load=min(1.0, max(0.0, reading.load)))
            )
        return None


def nvml_reading() -> GpuReading | None:
    """Return load and memory of all GPUs; None without a GPU, or where the driver does not say."""
    devices = read_devices()
    loads = [device.load for device in devices or () if device.load is not None]
    if not devices or len(loads) < len(devices):
        return None
    used_bytes = sum(device.used_bytes for device in devices)
    return GpuReading(max(loads), used_bytes, sum(device.total_bytes for device in devices))
