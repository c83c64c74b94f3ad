"""The Coordinator port: how callers reach the scheduler, in process or over a shared store."""

from forebay.coordination.in_process import InProcess
from forebay.coordination.port import Coordinator, Perform
from forebay.coordination.protocol.fleet import Fleet, FleetPicture, ReplicaView

__all__ = [
    "Coordinator",
    "Fleet",
    "FleetPicture",
    "InProcess",
    "Perform",
    "ReplicaView",
]
