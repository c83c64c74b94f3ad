"""GPU load through NVML, where there is an NVIDIA driver and the node is on this machine."""

import asyncio
import contextlib
import importlib
import threading
from collections.abc import Callable
from ipaddress import ip_address
from urllib.parse import urlsplit

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


class GpuMeter:
    """Read how busy this machine's GPUs are; None wherever that cannot be known.

    Readings run in a daemon thread of their own, one at a time: a driver that hangs costs one
    thread for good, and neither the loop nor the shutdown waits for it.
    """

    def __init__(self, measure: Callable[[], float | None] | None = None) -> None:
        self._measure = measure or nvml_load
        self._thread: threading.Thread | None = None

    async def load(self, url: str, limit_s: float = LIMIT_S) -> float | None:
        """Return the load of the busiest GPU, 0 to 1; None for a node elsewhere. Never raises."""
        if not is_loopback(url) or (self._thread is not None and self._thread.is_alive()):
            return None
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[float | None] = loop.create_future()

        def settle(load: float | None) -> None:
            if not answer.done():
                answer.set_result(load)

        def read() -> None:
            load = self._measured()
            with contextlib.suppress(RuntimeError):  # the loop has closed: nobody is waiting
                loop.call_soon_threadsafe(settle, load)

        self._thread = threading.Thread(target=read, name="gpu-meter", daemon=True)
        self._thread.start()
        try:
            async with asyncio.timeout(limit_s):
                return await answer
        except TimeoutError:
            return None

    def _measured(self) -> float | None:
        # A driver may fail in any way it likes; the load is then unknown, and that is all.
        with contextlib.suppress(Exception):
            load = self._measure()
            return None if load is None else min(1.0, max(0.0, load))
        return None


def nvml_load() -> float | None:
    """Ask NVML for the load of the busiest GPU; None without a GPU. Raises what NVML raises.

    The busiest, because which node uses which GPU is unknown, and a node is as slow as the GPU
    that it waits for.
    """
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    nvml.nvmlInit()
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(n) for n in range(nvml.nvmlDeviceGetCount())]
        return max(
            (nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100 for handle in handles),
            default=None,
        )
    finally:
        nvml.nvmlShutdown()
