"""A whole fleet on one machine, faults on command, and a judge who sees only what outsiders see."""

from harness.fleet.fleet import Fleet
from harness.fleet.link import Link
from harness.fleet.plan import FleetPlan, NodePlan
from harness.fleet.program import Program, ProgramFailed
from harness.fleet.recording_node import RecordingNode
from harness.fleet.schedule import Fault, random_schedule
from harness.fleet.store import Store
from harness.fleet.trial import Trial, Verdict, run_trial

__all__ = [
    "Fault",
    "Fleet",
    "FleetPlan",
    "Link",
    "NodePlan",
    "Program",
    "ProgramFailed",
    "RecordingNode",
    "Store",
    "Trial",
    "Verdict",
    "random_schedule",
    "run_trial",
]
