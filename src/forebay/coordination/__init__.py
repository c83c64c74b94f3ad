"""The Coordinator port: how callers reach the scheduler, in process or, later, over a store."""

from forebay.clock import TimerHandle
from forebay.coordination.in_process import InProcess
from forebay.coordination.port import CallAt, Coordinator, Perform

__all__ = ["CallAt", "Coordinator", "InProcess", "Perform", "TimerHandle"]
