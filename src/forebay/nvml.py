"""NVIDIA GPUs of this machine, read through NVML (`pip install 'forebay[gpu]'`)."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

T = TypeVar("T")


class GpuDevice(Struct, frozen=True):
    """One GPU at the moment it was read."""

    index: int
    used_bytes: int
    """Memory in use by all programs."""
    total_bytes: int
    load: float | None = None
    """0 to 1; None where the driver does not report it."""


def read_devices() -> list[GpuDevice] | None:
    """Return every GPU: none without the library or a driver, None where the driver fails.

    Takes 15 ms on an H200, the first call 110 ms; a stuck driver may block for ever.
    """
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # no library, no driver, no GPU
        return []
    try:
        return [_read(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except Exception:  # the driver is there, and cannot answer now
        return None
    finally:
        with contextlib.suppress(Exception):
            nvml.nvmlShutdown()


def _read(nvml: Any, index: int) -> GpuDevice:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    load = _optional(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
    return GpuDevice(index, memory.used, memory.total, load)


def _optional(read: Callable[[], T]) -> T | None:
    """Return a value that some devices do not report (MIG slices have no load, for one)."""
    try:
        return read()
    except Exception:
        return None
