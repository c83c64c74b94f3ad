"""What a backend is: one adapter per kind, health, discovery, the simulated and embedded node."""

from forebay.nodes.adapters.detection import ADAPTERS, detect
from forebay.nodes.adapters.report import Adapter, Fetch, Reply, Report
from forebay.nodes.discovery import Found, discover
from forebay.nodes.health import FailureKind, NodeHealth

__all__ = [
    "ADAPTERS", "Adapter", "FailureKind", "Fetch", "Found", "NodeHealth", "Reply", "Report",
    "detect", "discover",
]  # fmt: skip
