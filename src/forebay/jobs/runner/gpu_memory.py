"""How much GPU memory jobs may reserve: read through NVML periodically while they run.

The limit of a GPU is its free memory plus what our own types have reserved there, at most its size:
our models are part of the memory in use and must not be counted twice. Two consequences are
intended. A model that a server keeps loaded after our batch counts as another program's, so a type
may seem too large for the moment; it then runs alone rather than never (see `placement`). And a
type that has reserved its budget but not loaded its model yet hides as much of another program's
use as is missing, until it has loaded.

GB are 2**30 bytes, as in nvidia-smi.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from forebay.jobs.runner.placement import Gpu
from forebay.nvml import read_devices

logger = logging.getLogger("forebay.jobs")

GIB = 1 << 30
FIRST_READING_S = 5.0
"""A first reading takes 0.1 s; a driver that hangs must not block the start of a runner."""


class GpuMemory(Struct, frozen=True):
    """One GPU at the moment it was read."""

    index: int
    total_gb: float
    used_gb: float = 0.0
    """By all programs, our own jobs included."""


ReadGpus: TypeAlias = Callable[[], "Sequence[GpuMemory] | None"]


def nvml_memory() -> list[GpuMemory] | None:
    """Return the memory of every GPU; none without a driver, None where the driver fails."""
    devices = read_devices()
    if devices is None:
        return None
    return [GpuMemory(one.index, one.total_bytes / GIB, one.used_bytes / GIB) for one in devices]


class GpuWatch:
    """The last reading of the GPUs. Never raises.

    Readings run in a daemon thread, one at a time: a driver that hangs blocks neither the
    scheduler, which renews leases, nor a shutdown.
    """

    def __init__(self, available_gb: float | None, read: ReadGpus | None) -> None:
        self._fixed = available_gb is not None
        self._read = read or nvml_memory
        self._last: tuple[GpuMemory, ...] = ()
        if available_gb is not None:
            self._last = (GpuMemory(0, available_gb),)

    async def refresh(self) -> None:
        """Read the GPUs, in a thread of the event loop."""
        if self._fixed:
            return
        found: Sequence[GpuMemory] | None = None
        with contextlib.suppress(Exception):
            found = await asyncio.to_thread(self._read)
        if found is None:  # the last reading is better than no limit
            logger.warning("reading GPU memory failed", extra={"action": "gpus"})
        else:
            self._last = tuple(found)

    def gpus(self, held_gb: Mapping[int, float]) -> list[Gpu]:
        """Return the limit of each GPU, given what our types have reserved there; none: no limit.

        >>> watch = GpuWatch(None, lambda: [GpuMemory(0, 8.0, used_gb=6.0)])
        >>> asyncio.run(watch.refresh())
        >>> watch.gpus({}), watch.gpus({0: 5.0})
        ([Gpu(index=0, size_gb=2.0)], [Gpu(index=0, size_gb=7.0)])
        """
        return [
            Gpu(
                one.index,
                min(one.total_gb, one.total_gb - one.used_gb + held_gb.get(one.index, 0.0)),
            )
            for one in self._last
        ]
