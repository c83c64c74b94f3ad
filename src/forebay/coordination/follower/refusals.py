"""What a replica refuses without asking anyone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core import Reject
from forebay.core.arrivals import REASONS

if TYPE_CHECKING:
    from forebay.core import RejectCode


def refusal(ticket_id: str, code: RejectCode) -> Reject:
    """Return the same words that the core would use."""
    return Reject(ticket_id, code, (REASONS[code],))
