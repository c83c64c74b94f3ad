"""The Coordinator port: how callers reach the scheduler, in process or over a shared store."""

from forebay.clock import TimerHandle
from forebay.coordination.fleet import Fleet, FleetPicture, ReplicaView
from forebay.coordination.in_process import InProcess
from forebay.coordination.port import CallAt, Coordinator, Perform

__all__ = [
    "CallAt",
    "Coordinator",
    "Fleet",
    "FleetPicture",
    "InProcess",
    "Perform",
    "ReplicaView",
    "TimerHandle",
]
