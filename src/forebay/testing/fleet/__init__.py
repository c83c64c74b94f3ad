"""A whole fleet on one machine, faults on command, and a judge who sees only what outsiders see."""

from forebay.testing.fleet.fleet import Fleet
from forebay.testing.fleet.link import Link
from forebay.testing.fleet.plan import FleetPlan, NodePlan
from forebay.testing.fleet.program import Program, ProgramFailed
from forebay.testing.fleet.recording_node import RecordingNode
from forebay.testing.fleet.schedule import Fault, random_schedule
from forebay.testing.fleet.store import Store
from forebay.testing.fleet.trial import Trial, Verdict, run_trial

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
