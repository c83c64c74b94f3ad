"""What a backend is: one adapter per kind, health, discovery, the simulated and embedded node."""

from forebay.nodes.detect import ADAPTERS, detect
from forebay.nodes.discovery import Found, discover
from forebay.nodes.health import FailureKind, NodeHealth
from forebay.nodes.report import Adapter, Fetch, Reply, Report

__all__ = [
    "ADAPTERS", "Adapter", "FailureKind", "Fetch", "Found", "NodeHealth", "Reply", "Report",
    "detect", "discover",
]  # fmt: skip
