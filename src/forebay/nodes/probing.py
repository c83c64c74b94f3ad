"""Who probes the nodes and finds their slots: this process, or another one that tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from forebay.nodes.slot_limit import SlotLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.nodes.slot_sharing import FollowedLimit

AnyLimit: TypeAlias = "SlotLimit | FollowedLimit"


class Probing:
    """One for all nodes of a process."""

    def __init__(self) -> None:
        self.asks = True
        """Whether this process asks the nodes itself."""
        self.request: Callable[[str], None] = _nobody
        """Has the other process probe a node now; what it learns comes later, or never."""
        self.on_result: Callable[[str], None] = _nobody
        """Called with the name of a node after a probe that this process made."""
        self.limit: Callable[[str, AnyLimit | None], AnyLimit] = _found_alone
        """Returns the limit of a node, from what it was; None where nothing was known."""


def _nobody(_: str) -> None:
    """There is no other process."""


def _found_alone(_: str, known: AnyLimit | None) -> AnyLimit:
    return known or SlotLimit()
