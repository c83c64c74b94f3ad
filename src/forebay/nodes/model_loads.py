"""Which requests a node may have loaded a model for, by what it says and what it has answered.

Such a request begins late, by seconds, at any number of slots: it says nothing of how many run
well. A node that swaps models says which are in memory, but some list one while they still load
it. So a model counts as loaded once an answer of it has begun, until the node lists it no longer,
or begins to answer with another one that was not loaded, where that may have pushed it out. A load
for another gateway is seen only in the list of the next probe.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


class ModelLoads:
    """The models of one node that are certainly in memory, and since when.

    >>> loads = ModelLoads()
    >>> loads.may_delay("a", started_s=1.0)  # the node has not said that it ever loads any
    False
    >>> loads.note_report(loaded=("a",), loaded_max=1)
    >>> loads.note_answer("a", now_s=3.0)
    >>> loads.may_delay("a", started_s=1.0), loads.may_delay("a", started_s=3.5)
    (True, False)
    >>> loads.note_answer("b", now_s=9.0)
    >>> loads.may_delay("a", started_s=9.5), loads.may_delay("b", started_s=9.5)
    (True, False)
    """

    __slots__ = ("_room", "_since_s")

    def __init__(self) -> None:
        self._since_s: dict[str, float] | None = None  # by model; None where nothing is loaded ever
        self._room = 1  # models that fit in memory together

    def note_report(self, loaded: Collection[str] | None, loaded_max: int) -> None:
        """Take what the node says that it has in memory; None where it holds all its models."""
        if loaded is None:
            self._since_s = None
            return
        before = self._since_s or {}
        self._since_s = {model: at_s for model, at_s in before.items() if model in loaded}
        self._room = max(1, loaded_max)

    def note_answer(self, model: str, now_s: float) -> None:
        """Take an answer that has begun: its model is in memory now."""
        since_s = self._since_s
        if since_s is None or model in since_s:
            return
        if len(since_s) >= self._room:
            since_s.clear()  # one of them had to make room, who knows which
        since_s[model] = now_s

    def may_delay(self, model: str, started_s: float) -> bool:
        """Say whether a request of a model that was sent then may have waited for its load."""
        return self._since_s is not None and started_s < self._since_s.get(model, inf)
