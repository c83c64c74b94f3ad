"""A node that swaps models, and a model in its memory that is always wanted."""

from __future__ import annotations

from .rig import Rig

LOAD_S = 10.0
RESIDENCE_S = 9 * LOAD_S
LAST_CALL_S = 1.5 * LOAD_S


def swap_rig(slots: int = 1, loaded: str = "m", room: int = 1, **options: object) -> Rig:
    """One node that can hold one model of three at a time, and takes ten seconds to load one."""
    rig = Rig(**{"wait_s_max": 1e6, **options})
    rig.node(
        "n", slots, "m", "cold", "third", loaded=(loaded,), loaded_max=room, load_s=LOAD_S
    )  # fmt: skip
    return rig


def serve(rig: Rig, running: str, until_s: float, step_s: float = 1.0) -> str:
    """Keep the model in memory backlogged until a time; return what runs then."""
    number = 0
    while rig.now_s < until_s:
        rig.wait(f"w{rig.now_s}-{number}", user="hot")
        number += 1
        started = rig.finish(running, after_s=step_s)
        assert len(started) == 1
        running = started[0]
        if not running.startswith("w"):
            return running
    return running
