"""What runs next, and where: pure decisions, no I/O, no clock, no randomness."""

from forebay.core.actions import (
    NO_ROOM,
    Abort,
    Action,
    Audit,
    Decision,
    Describe,
    Expire,
    Lease,
    RateStatus,
    Reject,
    RejectCode,
    Route,
    SlotsChanged,
    Wait,
    WaitReason,
)  # fmt: skip
from forebay.core.events import (
    Arrived,
    Audited,
    Cancelled,
    Event,
    Finished,
    Inspected,
    KeysUsed,
    Lent,
    NodeChanged,
    NodeRemoved,
    NodeRested,
    Observed,
    OptionsChanged,
    Resumed,
    Returned,
    Revoked,
    ShutDown,
    Ticked,
)  # fmt: skip
from forebay.core.options import KeyLimits, Options, capped_priority, parse_priority
from forebay.core.returns import retry_delay_s
from forebay.core.scheduler import Scheduler
from forebay.core.snapshot import LaneView, NodeView, Snapshot, Totals

__all__ = [
    "NO_ROOM", "Abort", "Action", "Arrived", "Audit", "Audited", "Cancelled", "Decision",
    "Describe", "Event", "Expire", "Finished", "Inspected", "KeyLimits", "KeysUsed", "LaneView",
    "Lease", "Lent", "NodeChanged", "NodeRemoved", "NodeRested", "NodeView", "Observed",
    "Options", "OptionsChanged", "RateStatus", "Reject", "RejectCode", "Resumed", "Returned",
    "Revoked", "Route", "Scheduler", "ShutDown", "SlotsChanged", "Snapshot", "Ticked", "Totals",
    "Wait", "WaitReason", "capped_priority", "parse_priority", "retry_delay_s",
]  # fmt: skip
