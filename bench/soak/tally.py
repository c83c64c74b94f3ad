"""What became of everything that was sent, and what must never have happened."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.testing.raw_client import Reply

FAULTS_KEPT = 50
OUR_FAULTS = (b"internal_error", b"invariant_broken")


class Tally:
    """Counts of outcomes, and the first few faults in words."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []
        self.requests = 0

    def answered(self, kind: str, request_id: str, reply: Reply) -> None:
        """Count an answer; one with another's id, or with a fault of the gateway, is a fault."""
        self.requests += 1
        self.outcomes[f"{kind} {reply.status}"] += 1
        echoed = reply.headers.get("x-request-id", request_id)
        if echoed != request_id:
            self.fault(f"{kind}: the answer to {request_id} says that it is {echoed}")
        if reply.status == 500 and any(fault in reply.body for fault in OUR_FAULTS):
            self.fault(f"{kind}: {reply.status} {reply.body[:200]!r}")

    def left(self, kind: str, how: str) -> None:
        """Count a request whose client did not wait for the end."""
        self.requests += 1
        self.outcomes[f"{kind} {how}"] += 1

    def fault(self, text: str) -> None:
        """Keep what must not happen."""
        self.outcomes["FAULT"] += 1
        if len(self.faults) < FAULTS_KEPT:
            self.faults.append(text)
