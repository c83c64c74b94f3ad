"""Types that share GPUs under a runner: who starts, who waits, who gives way."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from forebay.jobs.runner.gpu_memory import GpuMemory
from forebay.testing import FakeClock

from ..script import LIMIT_S, Script, idle

if TYPE_CHECKING:
    from collections.abc import Callable


def test_without_a_gpu_everything_runs_at_once(script: Callable[..., Script]) -> None:
    work = script()
    for name in ("a", "b", "c"):
        work.add(name, vram_gb=500.0, held=True)
        work.submit(name, 1)
    work.runner.start()
    for name in ("a", "b", "c"):
        work.begun(name)
    assert work.runner.available_vram_gb is None


def test_two_gpus_are_filled_one_by_one(script: Callable[..., Script]) -> None:
    work = script(gpus=lambda: [GpuMemory(0, 8.0), GpuMemory(1, 8.0)])
    work.add("large", vram_gb=12.0, held=True)
    for name in ("a", "b", "c"):
        work.add(name, vram_gb=5.0, held=True)
        work.submit(name, 1, 2, 3)
    work.submit("large", 1)
    work.runner.start()
    work.begun("a")
    work.begun("b")
    assert work.runner.reserved_vram_gb == 10.0
    assert work.runner.available_vram_gb == 16.0
    work.let("a", 3)
    work.begun("c")
    assert not work.has_begun("large")
    work.end()
    idle(work.runner)
    assert work.ran[-1] == ("large", 1)


def test_what_other_programs_use_is_not_promised(script: Callable[..., Script]) -> None:
    used = [6.0]
    readings = threading.Semaphore(0)

    def read() -> list[GpuMemory]:
        readings.release()
        return [GpuMemory(0, 8.0, used[0])]

    work = script(gpus=read, vram_refresh_seconds=0.01)
    work.add("small", vram_gb=2.0, held=True)
    work.add("medium", vram_gb=1.5, held=True)
    work.add("bell", vram_gb=0.0)
    work.submit("small", 1)
    work.runner.start()
    work.begun("small")
    used[0] = 8.0  # ours has loaded its model; another program keeps what it had
    while readings.acquire(blocking=False):
        pass
    assert readings.acquire(timeout=LIMIT_S)  # one at least has begun since,
    assert readings.acquire(timeout=LIMIT_S)  # and it is taken before the next begins
    work.submit("medium", 1)
    work.submit("bell", 1)
    work.begun("bell")  # so the scheduler has looked, and passed the other over
    assert work.runner.reserved_vram_gb == 2.0
    used[0] = 3.0
    work.begun("medium")


def test_the_configuration_overrides_one_budget_and_keeps_the_others(
    script: Callable[..., Script],
) -> None:
    work = script(available_vram_gb=100.0, vram_budgets={"a": 7.0})
    for name in ("a", "b"):
        work.add(name, vram_gb=2.5, held=True)
        work.submit(name, 1)
    work.runner.start()
    work.begun("a")
    work.begun("b")
    assert work.runner.reserved_vram_gb == 9.5


def test_a_budget_larger_than_the_gpu_still_runs_and_alone(script: Callable[..., Script]) -> None:
    work = script(available_vram_gb=8.0)
    work.add("huge", vram_gb=80.0, held=True)
    work.add("small", vram_gb=1.0)
    work.submit("huge", 1, 2)
    work.submit("small", 1)
    work.runner.start()
    work.begun("huge")
    work.end()
    idle(work.runner)
    assert [name for name, _ in work.ran] == ["huge", "huge", "small"]
    assert work.runner.reserved_vram_gb == 0


def test_a_blocked_type_starts_when_the_other_ends_and_not_by_polling(
    script: Callable[..., Script],
) -> None:
    work = script(available_vram_gb=4.0)
    work.add("a", vram_gb=4.0, held=True)
    work.add("b", vram_gb=4.0)
    work.runner.start()
    work.submit("a", 1)
    work.begun("a")
    work.submit("b", 1)
    assert not work.has_begun("b")
    work.let("a")
    work.begun("b")
    idle(work.runner)
    assert work.runner.reserved_vram_gb == 0


def test_a_type_that_waited_too_long_makes_a_busy_one_give_way(
    script: Callable[..., Script],
) -> None:
    clock = FakeClock()
    work = script(available_vram_gb=4.0, max_type_wait_seconds=300.0, clock=clock)
    work.add("busy", vram_gb=4.0, held=True)
    work.add("patient", vram_gb=4.0)
    work.add("bell", vram_gb=0.0)
    work.submit("busy", *range(10))
    work.runner.start()
    work.begun("busy")
    work.submit("patient", 1)
    work.submit("bell", 0)
    work.begun("bell")  # so the other one has been seen to wait
    work.let("busy")
    work.begun("busy")
    clock.advance(301.0)
    work.submit("bell", 1)  # anything that wakes the scheduler, in the place of real time
    work.begun("bell")
    work.end()
    idle(work.runner)
    assert [one for one in work.ran if one[0] != "bell"] == [
        ("busy", 0), ("busy", 1), ("patient", 1), *(("busy", n) for n in range(2, 10)),
    ]  # fmt: skip


def test_with_no_patience_at_all_types_take_turns(script: Callable[..., Script]) -> None:
    work = script(available_vram_gb=4.0, max_type_wait_seconds=0.0)
    for name in ("a", "b"):
        work.add(name, vram_gb=4.0)
        work.submit(name, *range(6))
    work.runner.start()
    idle(work.runner)
    assert [name for name, _ in work.ran] == ["a", "b"] * 6
