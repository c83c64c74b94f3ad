"""What the replicas say of the nodes, made into one opinion.

Every replica asks every node by itself. Of several reports the latest is believed: it is news,
unless a replica says from the start that it cannot reach a node, which others may well. A
report that a node has failed is news for the others, too, so they are told to look at once, and a
good answer of theirs is later news. An operator's wish to drain holds as long as any replica has
it; of the slots the smallest count of those that can reach the node is used: who was told 429
knows better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.core import NodeRemoved

if TYPE_CHECKING:
    from forebay.core import NodeChanged


class NodeViews:
    """The reports by node and replica; the latest last."""

    def __init__(self) -> None:
        self._views: dict[str, dict[str, NodeChanged]] = {}
        self.merged: dict[str, NodeChanged] = {}
        """The common opinion of each node."""

    def take(
        self, member: str, event: NodeChanged | NodeRemoved
    ) -> tuple[NodeChanged | NodeRemoved | None, bool]:
        """Take a report; return what follows for all, and whether the others should look."""
        if isinstance(event, NodeRemoved):
            return self.remove(member, event.name), False
        return self.change(member, event)

    def change(self, member: str, event: NodeChanged) -> tuple[NodeChanged, bool]:
        """Take a report; return the common opinion, and whether the others should look."""
        views = self._views.setdefault(event.name, {})
        before = views.pop(member, None)
        views[member] = event
        if before is None and event.state == "offline":  # it has not seen it fail: that is no news
            self._views[event.name] = views = {member: event, **views}
        failed = event.state == "offline" and before is not None and before.state == "online"
        merged = self.merged[event.name] = _merged(views)
        return merged, failed

    def reaches(self, member: str, node: str) -> bool:
        """Say whether a replica knows a node, and does not hold it to be offline."""
        views = self._views.get(node)
        view = None if views is None else views.get(member)
        return view is not None and view.state != "offline"

    def remove(self, member: str, node: str) -> NodeChanged | NodeRemoved | None:
        """Forget a report; the node is gone when it was the last."""
        views = self._views.get(node)
        if views is None or views.pop(member, None) is None:
            return None
        if views:
            merged = self.merged[node] = _merged(views)
            return merged
        del self._views[node], self.merged[node]
        return NodeRemoved(node)

    def forget(self, member: str) -> list[NodeChanged | NodeRemoved]:
        """Forget all reports of a replica."""
        changes = [self.remove(member, node) for node in list(self._views)]
        return [change for change in changes if change is not None]


def _merged(views: dict[str, NodeChanged]) -> NodeChanged:
    latest = next(reversed(views.values()))
    up = [view.slots for view in views.values() if view.state == "online"]
    slots = min(up) if up else latest.slots
    draining = any(view.state == "draining" for view in views.values())
    state = "draining" if draining and latest.state == "online" else latest.state
    if slots == latest.slots and state == latest.state:
        return latest
    return replace(latest, slots=slots, state=state)
