"""Public test doubles: a clock and a node you control, a raw client."""

from forebay.testing.clock import FakeClock
from forebay.testing.fake_fleet import FakeDirectory, FakeFleet
from forebay.testing.fake_node import Call, FakeNode
from forebay.testing.raw_client import RawClient, Reply

__all__ = [
    "Call",
    "FakeClock",
    "FakeDirectory",
    "FakeFleet",
    "FakeNode",
    "RawClient",
    "Reply",
]
