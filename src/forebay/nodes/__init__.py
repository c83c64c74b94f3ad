"""What a backend is: one adapter per kind, health, discovery, the simulated and embedded node."""

from forebay.nodes.adapters.detection import ADAPTERS, detect
from forebay.nodes.adapters.report import Adapter, Fetch, NodeReport, ProbeReply
from forebay.nodes.discovery import Found, discover
from forebay.nodes.health import FailureKind, NodeHealth

__all__ = [
    "ADAPTERS", "Adapter", "FailureKind", "Fetch", "Found", "NodeHealth", "NodeReport",
    "ProbeReply", "detect", "discover",
]  # fmt: skip
