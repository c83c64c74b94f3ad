"""NVML: what a driver reports of each GPU, and what is known when it fails."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from forebay.nvml import GpuDevice, read_devices


def fake_nvml(*cards: tuple[int, int], fails: str = "", **more: Any) -> types.ModuleType:
    module = types.ModuleType("pynvml")

    def answer(name: str, value: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if name == fails:
                raise RuntimeError("NVML: GPU is lost")
            return value(*arguments) if callable(value) else value

        return call

    def memory(index: int) -> Any:
        return types.SimpleNamespace(used=cards[index][0], total=cards[index][1])

    for name, value in {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetCount": len(cards),
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": memory,
        **more,
    }.items():
        setattr(module, name, answer(name, value))
    return module


def test_every_card_is_read_and_the_driver_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go: list[bool] = []
    module = fake_nvml(
        (1, 8),
        (20, 24),
        nvmlShutdown=lambda: let_go.append(True),
        nvmlDeviceGetUtilizationRates=lambda index: types.SimpleNamespace(gpu=(10, 80)[index]),
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert read_devices() == [GpuDevice(0, 1, 8, 0.1), GpuDevice(1, 20, 24, 0.8)]
    assert let_go == [True]


def test_a_card_that_reports_its_memory_alone_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml((1, 8)))
    assert read_devices() == [GpuDevice(0, 1, 8)]


@pytest.mark.parametrize("module", [None, fake_nvml(fails="nvmlInit"), fake_nvml()])
def test_without_a_driver_or_a_card_there_is_none(
    monkeypatch: pytest.MonkeyPatch, module: types.ModuleType | None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert read_devices() == []


def test_a_driver_that_fails_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_nvml((1, 8), fails="nvmlDeviceGetMemoryInfo")
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert read_devices() is None
