"""The Coordinator port: how callers reach the scheduler, in process or, later, over a store."""

from forebay.coordination.in_process import InProcess
from forebay.coordination.port import CallAt, Coordinator, Perform, TimerHandle

__all__ = ["CallAt", "Coordinator", "InProcess", "Perform", "TimerHandle"]
