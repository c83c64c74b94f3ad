"""Who probes the nodes: this process, or another one that tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Probing:
    """One for all nodes of a process."""

    def __init__(self) -> None:
        self.asks = True
        """Whether this process asks the nodes itself."""
        self.request: Callable[[str], None] = lambda _: None
        """Has the other process probe a node now; what it learns comes later, or never."""
        self.on_result: Callable[[str], None] = lambda _: None
        """Called with the name of a node after a probe that this process made."""
