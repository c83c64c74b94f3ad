"""The options of a runner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from forebay.errors import NotAllowed


class RunnerOptions(Struct, frozen=True, kw_only=True):
    """The options of a runner; the defaults are those of the settings' `[jobs]`.

    Raises NotAllowed, naming the option, when one makes no sense.
    """

    available_vram_gb: float | None = None
    """One GPU of this size, whatever there is; None asks NVML, and is no limit without a GPU."""
    vram_budgets: Mapping[str, float] = {}
    """GB by task type, over what the decorators say."""
    max_queue_depth: int = 500
    bypass_workers: int = 32
    """Jobs of bypass types at once, all types together: a thousand submissions must not start a
    thousand threads."""
    max_type_wait_seconds: float = 300.0
    """How long a type may wait behind others before they give way; 0: turns after every job."""
    on_interrupt: Literal["fail", "retry"] = "fail"
    attempts: int = 3
    lease_seconds: float = 30.0
    vram_refresh_seconds: float = 10.0
    poll_seconds: float = 1.0
    """How soon jobs that other programs add are seen; one's own are seen at once."""
    retention_days: float | None = None
    """Ended jobs of this age are deleted; None keeps them."""

    def __post_init__(self) -> None:
        for name in ("max_queue_depth", "bypass_workers", "attempts"):
            if getattr(self, name) < 1:
                raise NotAllowed(f"{name} must be 1 or more")
        for name in ("lease_seconds", "vram_refresh_seconds", "poll_seconds", "retention_days"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise NotAllowed(f"{name} must be above 0")
        for name in ("available_vram_gb", "max_type_wait_seconds"):
            if not (getattr(self, name) or 0) >= 0:
                raise NotAllowed(f"{name} must be 0 or more")
        if self.on_interrupt not in ("fail", "retry"):
            raise NotAllowed('on_interrupt is "fail" or "retry"')
