"""Reading GPUs: whatever a driver does, a runner goes on."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from forebay.jobs.runner.gpu_memory import GIB, GpuMemory, GpuWatch, nvml_memory
from forebay.jobs.runner.placement import Gpu


def fake_nvml(*cards: tuple[int, int], fails: str = "") -> types.ModuleType:
    module = types.ModuleType("pynvml")

    def answer(name: str, value: Any) -> Any:
        def call(*_: Any) -> Any:
            if name == fails:
                raise RuntimeError("NVML: GPU is lost")
            return value(*_) if callable(value) else value

        return call

    def memory(index: int) -> Any:
        return types.SimpleNamespace(total=cards[index][0] * GIB, used=cards[index][1] * GIB)

    for name, value in {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetCount": len(cards),
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": memory,
    }.items():
        setattr(module, name, answer(name, value))
    return module


def test_every_card_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml((8, 1), (24, 20)))
    assert nvml_memory() == [GpuMemory(0, 8.0, 1.0), GpuMemory(1, 24.0, 20.0)]


@pytest.mark.parametrize("module", [None, fake_nvml(fails="nvmlInit"), fake_nvml()])
def test_without_a_driver_or_a_card_there_is_none(
    monkeypatch: pytest.MonkeyPatch, module: types.ModuleType | None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert nvml_memory() == []


def test_a_driver_that_fails_later_leaves_what_was_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml((8, 1)))
    watch = GpuWatch(None, None)
    watch.first()
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml((8, 1), fails="nvmlDeviceGetMemoryInfo"))
    assert nvml_memory() is None
    watch.first()
    assert watch.gpus({}) == [Gpu(0, 7.0)]


def test_a_reader_that_raises_is_no_limit_and_no_error() -> None:
    def read() -> list[GpuMemory]:
        raise OSError("no such driver")

    watch = GpuWatch(None, read)
    watch.first()
    assert watch.gpus({}) == []


def test_our_own_use_is_not_counted_twice_and_a_card_is_never_larger_than_it_is() -> None:
    watch = GpuWatch(None, lambda: [GpuMemory(0, 8.0, 6.0)])
    watch.first()
    assert watch.gpus({0: 5.0}) == [Gpu(0, 7.0)]
    assert watch.gpus({0: 7.5}) == [Gpu(0, 8.0)]


def test_a_given_size_is_one_gpu_whatever_there_is() -> None:
    watch = GpuWatch(6.0, lambda: [GpuMemory(0, 80.0)])
    watch.first()
    assert watch.gpus({}) == [Gpu(0, 6.0)]
