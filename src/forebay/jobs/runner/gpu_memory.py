"""How much GPU memory jobs may have: read through NVML, again and again while they run.

What may be promised on a GPU is what is free there now plus what our own types hold there, but
never more than it has: our models are part of what is used, and must not be counted twice, while
what other programs take is theirs. Two things follow that are meant so. A model that a server keeps
loaded after our batch counts as another program's, so a type may seem too large for the moment; it
then runs alone rather than never (see `vram`). And a type that holds its budget but has not loaded
its model yet hides as much of another program's use as is missing, until it has loaded.

GB are 2**30 bytes, as on the box of a card and in nvidia-smi.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from forebay.jobs.runner.placement import Gpu
from forebay.nvml import read_devices

logger = logging.getLogger("forebay.jobs")

GIB = 1 << 30
FIRST_READING_S = 5.0
"""A first reading takes 0.1 s; a driver that hangs must not keep a runner from starting."""


class GpuMemory(Struct, frozen=True):
    """One GPU, as it was when it was read."""

    index: int
    total_gb: float
    used_gb: float = 0.0
    """By anyone, our own jobs included."""
    uuid: str = ""
    """Its own number, wherever it is; empty where nobody says."""


ReadGpus: TypeAlias = Callable[[], "Sequence[GpuMemory] | None"]


def nvml_memory() -> list[GpuMemory] | None:
    """Return every GPU's memory; none without a driver, None where it cannot say now."""
    devices = read_devices()
    if devices is None:
        return None
    return [
        GpuMemory(one.index, one.total_bytes / GIB, one.used_bytes / GIB, one.uuid)
        for one in devices
    ]


class GpuWatch:
    """The last reading of the GPUs. Never raises, and waits for a driver once at most.

    Readings run in a daemon thread of their own, one at a time, so that a driver that hangs holds
    up neither the scheduler, which keeps leases alive, nor a shutdown.
    """

    def __init__(self, available_gb: float | None, read: ReadGpus | None) -> None:
        self._fixed = available_gb is not None
        self._read = read or nvml_memory
        self._host = socket.gethostname()
        self._last: tuple[GpuMemory, ...] = ()
        self._thread: threading.Thread | None = None
        if available_gb is not None:
            self._last = (GpuMemory(0, available_gb),)

    def first(self) -> None:
        """Read, and wait for it."""
        self.refresh(lambda: None)
        if self._thread is not None:
            self._thread.join(FIRST_READING_S)

    def refresh(self, then: Callable[[], object]) -> None:
        """Read in the background, and call `then` from there."""
        if self._fixed or (self._thread is not None and self._thread.is_alive()):
            return

        def work() -> None:
            self._take()
            then()

        self._thread = threading.Thread(target=work, name="forebay-gpus", daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for a reading that is under way."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def names(self) -> dict[int, str]:
        """Return what every GPU is known by, on this machine and in every program."""
        return {one.index: one.uuid or f"{self._host}:{one.index}" for one in self._last}

    def sizes(self, held_gb: Mapping[str, float]) -> dict[str, float]:
        """Return what may be promised on each GPU in all, given what is promised by its name."""
        names = self.names()
        return {
            names[one.index]: min(
                one.total_gb, one.total_gb - one.used_gb + held_gb.get(names[one.index], 0.0)
            )
            for one in self._last
        }

    def gpus(
        self, held_gb: Mapping[int, float], others_gb: Mapping[str, float] | None = None
    ) -> list[Gpu]:
        """Return what may be held on each GPU, and what of it others hold; none: no limit.

        >>> watch = GpuWatch(None, lambda: [GpuMemory(0, 8.0, used_gb=6.0, uuid="GPU-a")])
        >>> watch.first()
        >>> watch.gpus({}), watch.gpus({0: 5.0}), watch.gpus({0: 2.0}, {"GPU-a": 3.0})
        ... # doctest: +NORMALIZE_WHITESPACE
        ([Gpu(index=0, size_gb=2.0, others_gb=0.0)], [Gpu(index=0, size_gb=7.0, others_gb=0.0)],
         [Gpu(index=0, size_gb=7.0, others_gb=3.0)])
        """
        others = others_gb or {}
        names = self.names()
        held = {
            name: held_gb.get(index, 0.0) + others.get(name, 0.0) for index, name in names.items()
        }
        sizes = self.sizes(held)
        return [Gpu(index, sizes[name], others.get(name, 0.0)) for index, name in names.items()]

    def _take(self) -> None:
        try:
            found = self._read()
        except Exception:
            found = None
        if found is None:  # better what was known before than no limit
            logger.warning("the GPUs' memory could not be read", extra={"action": "gpus"})
        else:
            self._last = tuple(found)
