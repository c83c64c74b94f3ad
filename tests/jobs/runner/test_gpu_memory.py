"""Reading GPUs: whatever a driver does, a runner goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.jobs.runner import gpu_memory
from forebay.jobs.runner.gpu_memory import GIB, GpuMemory, GpuWatch, nvml_memory
from forebay.jobs.runner.placement import Gpu
from forebay.nvml import GpuDevice

if TYPE_CHECKING:
    import pytest


async def test_a_driver_that_fails_later_leaves_what_was_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    devices: list[GpuDevice] | None = [GpuDevice(0, 1 * GIB, 8 * GIB)]
    monkeypatch.setattr(gpu_memory, "read_devices", lambda: devices)
    watch = GpuWatch(None, None)
    await watch.refresh()
    assert nvml_memory() == [GpuMemory(0, 8.0, 1.0)]
    devices = None
    assert nvml_memory() is None
    await watch.refresh()
    assert watch.gpus({}) == [Gpu(0, 7.0)]


async def test_a_reader_that_raises_is_no_limit_and_no_error() -> None:
    def read() -> list[GpuMemory]:
        raise OSError("no such driver")

    watch = GpuWatch(None, read)
    await watch.refresh()
    assert watch.gpus({}) == []


async def test_our_own_use_is_not_counted_twice_and_a_card_is_never_larger_than_it_is() -> None:
    watch = GpuWatch(None, lambda: [GpuMemory(0, 8.0, 6.0)])
    await watch.refresh()
    assert watch.gpus({0: 5.0}) == [Gpu(0, 7.0)]
    assert watch.gpus({0: 7.5}) == [Gpu(0, 8.0)]


async def test_a_given_size_is_one_gpu_whatever_there_is() -> None:
    watch = GpuWatch(6.0, lambda: [GpuMemory(0, 80.0)])
    await watch.refresh()
    assert watch.gpus({}) == [Gpu(0, 6.0)]
