"""What a soak calls a leak, and what it does not."""

import importlib.util
import random
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent.parent.parent / "bench" / "soak"


def _module(name: str) -> Any:
    """Load a module of the soak from its file: the benchmarks are not installed."""
    spec = importlib.util.spec_from_file_location(f"soak_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # msgspec looks its annotations up there
    spec.loader.exec_module(module)
    return module


Sample = _module("samples").Sample
verdict = _module("verdict")
MIB, not_back, not_flat = verdict.MIB, verdict.not_back, verdict.not_flat
COUNT, EVERY_S = 200, 10.0
RSS_MIB, FDS = 100, 40


def sample(at_s: float = 0.0, rss_mib: float = RSS_MIB, fds: int = FDS, **others: Any) -> Any:
    usual: dict[str, Any] = {
        "threads": 15,
        "cpu_s": 0.0,
        "all_cpu_s": 0.0,
        "health_s": 0.01,
        "slots": 3.0,
        "waiting": 0.0,
        "jobs_open": 0.0,
        "sessions": 0.0,
        "requests": 0.0,
        "outcomes": {},
        "told": {},
    }
    return Sample(at_s=at_s, rss_bytes=int(rss_mib * MIB), fds=fds, **{**usual, **others})


def run(rss_mib: list[float], fds: list[int] | None = None) -> list[Any]:
    fds = fds or [FDS] * len(rss_mib)
    return [
        sample(place * EVERY_S, *both) for place, both in enumerate(zip(rss_mib, fds, strict=True))
    ]


def test_a_slow_leak_is_found_under_spikes_of_large_bodies() -> None:
    draw = random.Random(1)
    spikes = [60.0 if draw.random() < 0.1 else 0.0 for _ in range(COUNT)]
    leak = [RSS_MIB + 0.25 * place + spikes[place] for place in range(COUNT)]
    assert any("memory grew" in text for text in not_flat(run(leak)))


@pytest.mark.parametrize("seed", range(20))
def test_spikes_noise_and_a_warm_up_are_no_leak(seed: int) -> None:
    draw = random.Random(seed)
    warm_up = [min(30.0, place) for place in range(COUNT)]
    noise = list(accumulate(draw.choice([-0.3, 0.3]) for _ in range(COUNT)))
    spikes = [draw.uniform(0, 60) if draw.random() < 0.15 else 0.0 for _ in range(COUNT)]
    shape = zip(warm_up, noise, spikes, strict=True)
    assert not_flat(run([RSS_MIB + sum(parts) for parts in shape])) == []


def test_one_late_step_within_the_bound_is_no_leak() -> None:
    step = [RSS_MIB + (7.0 if place > COUNT // 2 else 0.0) for place in range(COUNT)]
    assert not_flat(run(step)) == []


def test_descriptors_that_are_never_closed_are_found() -> None:
    leak = [FDS + place // 4 for place in range(COUNT)]
    assert any("descriptors grew" in text for text in not_flat(run([RSS_MIB] * COUNT, leak)))


def test_descriptors_of_clients_that_are_there_do_not_count() -> None:
    crowd = run([RSS_MIB] * COUNT, [FDS + place for place in range(COUNT)])
    for place, one in enumerate(crowd):
        one.present = place
    assert not_flat(crowd) == []


def test_an_orphaned_lease_is_a_failure_however_small() -> None:
    samples = run([RSS_MIB] * COUNT)
    samples[-1].told["leases_orphaned_total"] = 1.0
    assert not_flat(samples) == ["1 leases were without a live exchange"]


def test_too_few_samples_are_no_pass() -> None:
    assert not_flat(run([RSS_MIB] * 3)) == ["only 3 samples: too few to judge"]


@pytest.mark.parametrize("left", ["slots", "waiting", "jobs_open", "sessions"])
def test_whatever_is_left_after_the_drain_is_told(left: str) -> None:
    before = sample(slots=0.0)
    others: Any = {"slots": 0.0, left: 1.0}
    now = sample(**others)
    assert not_back(before, before, 4) == []
    assert not_back(before, now, 4) == [f"{left}: 1, and 0 may be"]


@pytest.mark.parametrize("name", ["leases", "body_bytes", "connections", "tasks"])
def test_a_metric_that_the_gateway_tells_must_return_to_its_baseline(name: str) -> None:
    before = sample(slots=0.0, told={"connections": 1.0, "tasks": 9.0})
    usual = {"leases": 0.0, "body_bytes": 0.0, "connections": 1.0, "tasks": 9.0}
    assert not_back(before, sample(slots=0.0, told=usual), 4) == []
    over = {**usual, name: usual[name] + 1}
    assert len(not_back(before, sample(slots=0.0, told=over), 4)) == 1


def test_only_pooled_connections_may_be_left_open() -> None:
    before = sample(slots=0.0)
    assert not_back(before, sample(slots=0.0, fds=FDS + 4), 4) == []
    assert len(not_back(before, sample(slots=0.0, fds=FDS + 5), 4)) == 1
