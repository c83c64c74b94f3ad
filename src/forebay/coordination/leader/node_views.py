"""What the replicas say of the nodes, made into one opinion.

Every replica asks every node by itself. Of several reports the latest is believed: it is news,
unless a replica says from the start that it cannot reach a node, which others may well. A
report that a node has failed is news for the others, too, so they are told to look at once, and a
good answer of theirs is later news. An operator's wish to drain holds as long as any replica has
it; of the slots the smallest count of those that can reach the node is used: who was told 429
knows better. A node is gone since the last of them saw it fail, and new while it has answered none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from forebay.core import NodeRemoved

if TYPE_CHECKING:
    from forebay.core import NodeChanged


class View(NamedTuple):
    """A report, and when it was made."""

    said: NodeChanged
    said_s: float

    def at(self, now_s: float) -> NodeChanged:
        """Return what it says now: for as long, the node has been gone, or been loading, too."""
        said, by_s = self.said, now_s - self.said_s
        if said.state == "online" or by_s <= 0.0:
            return said
        ready_in_s = None if said.ready_in_s is None else max(0.0, said.ready_in_s - by_s)
        away_s = said.away_s if said.state == "loading" else said.away_s + by_s
        return replace(said, away_s=away_s, ready_in_s=ready_in_s)


class OwnViews:
    """What one replica says of the nodes."""

    def __init__(self) -> None:
        self._views: dict[str, View] = {}

    def change(self, event: NodeChanged, now_s: float) -> None:
        """Take a report."""
        self._views[event.name] = View(event, now_s)

    def remove(self, node: str) -> None:
        """Forget a node."""
        self._views.pop(node, None)

    def at(self, now_s: float) -> dict[str, NodeChanged]:
        """Return all of them as they are now."""
        return {name: view.at(now_s) for name, view in self._views.items()}

    def slots(self) -> int:
        """Return how many slots there are, as far as it knows."""
        return sum(view.said.slots for view in self._views.values())


class NodeViews:
    """The reports by node and replica; the latest last."""

    def __init__(self) -> None:
        self._views: dict[str, dict[str, View]] = {}
        self.merged: dict[str, NodeChanged] = {}
        """The common opinion of each node."""

    def take(
        self, member: str, event: NodeChanged | NodeRemoved, now_s: float
    ) -> tuple[NodeChanged | NodeRemoved | None, bool]:
        """Take a report; return what follows for all, and whether the others should look."""
        if isinstance(event, NodeRemoved):
            return self.remove(member, event.name, now_s), False
        return self.change(member, event, now_s)

    def change(self, member: str, event: NodeChanged, now_s: float) -> tuple[NodeChanged, bool]:
        """Take a report; return the common opinion, and whether the others should look."""
        views = self._views.setdefault(event.name, {})
        before = views.pop(member, None)
        views[member] = view = View(event, now_s)
        if before is None and event.state == "offline":  # it has not seen it fail: that is no news
            self._views[event.name] = views = {member: view, **views}
        failed = event.state == "offline" and before is not None and before.said.state == "online"
        merged = self.merged[event.name] = _merged(views, now_s)
        return merged, failed

    def reaches(self, member: str, node: str) -> bool:
        """Say whether a replica knows a node, and does not hold it to be offline."""
        views = self._views.get(node)
        view = None if views is None else views.get(member)
        return view is not None and view.said.state != "offline"

    def remove(self, member: str, node: str, now_s: float) -> NodeChanged | NodeRemoved | None:
        """Forget a report; the node is gone when it was the last."""
        views = self._views.get(node)
        if views is None or views.pop(member, None) is None:
            return None
        if views:
            merged = self.merged[node] = _merged(views, now_s)
            return merged
        del self._views[node], self.merged[node]
        return NodeRemoved(node)

    def forget(self, member: str, now_s: float) -> list[NodeChanged | NodeRemoved]:
        """Forget all reports of a replica."""
        changes = [self.remove(member, node, now_s) for node in list(self._views)]
        return [change for change in changes if change is not None]


def _merged(views: dict[str, View], now_s: float) -> NodeChanged:
    said = [view.at(now_s) for view in views.values()]
    latest = said[-1]
    up = [view.slots for view in said if view.state == "online"]
    slots = min(up) if up else latest.slots
    draining = any(view.state == "draining" for view in said)
    state = "draining" if draining and latest.state == "online" else latest.state
    away_s = min(view.away_s for view in said if state != "draining" or view.state == "draining")
    is_new = all(view.is_new for view in said)
    if (slots, state, away_s, is_new) == (latest.slots, latest.state, latest.away_s, latest.is_new):
        return latest
    return replace(latest, slots=slots, state=state, away_s=away_s, is_new=is_new)
