"""A hundred thousand users with ten requests each (FAULTS 15): what one more costs stays small."""

import gc
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from forebay.core import Scheduler
from forebay.core.actions import Route
from forebay.core.events import Arrived, Cancelled, Finished, NodeChanged, Observed
from forebay.core.options import Options
from forebay.core.snapshot import Snapshot

ENTRY_BYTES_MAX = 1500
"""Measured: about 850 for an entry, its arrival and its places in heaps and dicts."""
CALLS_MAX = 115
"""Measured, those written in C as well: 108 for an arrival and 79 for a finish, at any depth."""


def test_fault_15_five_thousand_users_with_ten_requests_each_fit_the_budget() -> None:
    check_crowd(5_000)


@pytest.mark.long
def test_a_hundred_thousand_users_with_ten_requests_each_fit_the_budget() -> None:
    check_crowd(100_000)


def check_crowd(users: int) -> None:
    script = Path(__file__).with_name("crowd.py")
    shown = subprocess.run(
        [sys.executable, str(script), str(users)], capture_output=True, text=True, check=True
    )
    found = json.loads(shown.stdout)
    assert found["entry_bytes"] <= ENTRY_BYTES_MAX, found
    for operation in ("arrive", "finish"):
        assert found["many"][operation] <= CALLS_MAX, found
        assert found["many"][operation] <= 1.5 * found["few"][operation] + 10, found


def test_memory_is_given_back_when_a_crowd_has_gone() -> None:
    scheduler = Scheduler(Options(max_size=1_000_000, wait_s_max=1e9, idle_users_max=20))
    scheduler.handle(NodeChanged("n", 1, ("m",)), 0.0)
    scheduler.handle(Arrived("running", "m", user="first"), 0.0)
    tracemalloc.start()
    try:
        for number in range(5000):
            scheduler.handle(Arrived(f"r{number}", "m", user=f"user{number // 5}"), 1.0)
        peak_bytes = tracemalloc.get_traced_memory()[0]
        for number in range(5000):
            scheduler.handle(Cancelled(f"r{number}"), 2.0)
        scheduler.next_deadline_s()
        scheduler.handle(Arrived("next", "m", user="next"), 3.0)  # sweeps what is dead
        gc.collect()  # else it depends on when that was last done
        left_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert peak_bytes > 5000 * 300
    assert left_bytes < peak_bytes / 20
    seen = scheduler.handle(Observed(), 3.0)[0]
    assert isinstance(seen, Snapshot)
    assert (seen.waiting, seen.running) == (1, 1)


def test_a_crowd_of_users_who_come_once_is_forgotten() -> None:
    scheduler = Scheduler(Options(idle_users_max=100))
    scheduler.handle(NodeChanged("n", 1, ("m",)), 0.0)
    tracemalloc.start()
    try:
        for number in range(4000):
            actions = scheduler.handle(Arrived("r", "m", user=f"user{number}"), float(number))
            assert isinstance(actions[0], Route)
            scheduler.handle(Finished("r"), number + 0.5)
        gc.collect()
        late_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert late_bytes < 4000 * 150  # a user that is remembered takes more than twice that
