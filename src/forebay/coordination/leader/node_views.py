"""The replicas' reports of the nodes, merged into one view of each node.

Every replica probes every node by itself. Of several reports the latest counts, unless a replica
reports from the start that it cannot reach a node, which others may well. When a node fails for one
replica, the others are told to probe it at once, and a good answer of theirs is a later report. A
drain holds as long as any replica reports it. Of the slot counts the smallest is used among those
that reach the node: one that was told 429 knows better. Of a count that the core finds itself, the
reports only say where to begin. A node is away since the last of them saw it fail, and new while it
has answered none. Only those that its guard speaks to know the room in its cache: the latest
reading counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from forebay.core import NodeRemoved

if TYPE_CHECKING:
    from forebay.core import NodeChanged


class ReportedNode(NamedTuple):
    """One replica's report of a node, and when it was made."""

    event: NodeChanged
    at_s: float

    def at(self, now_s: float) -> NodeChanged:
        """Return the report as of now: the node has been away, or loading, that much longer."""
        event, by_s = self.event, now_s - self.at_s
        if event.state == "online" or by_s <= 0.0:
            return event
        ready_in_s = None if event.ready_in_s is None else max(0.0, event.ready_in_s - by_s)
        away_s = event.away_s if event.state == "loading" else event.away_s + by_s
        return replace(event, away_s=away_s, ready_in_s=ready_in_s)


class OwnNodeViews:
    """One replica's own reports."""

    def __init__(self) -> None:
        self._views: dict[str, ReportedNode] = {}

    def change(self, event: NodeChanged, now_s: float) -> None:
        self._views[event.name] = ReportedNode(event, now_s)

    def change_slots(self, node: str, slots: int) -> None:
        """Take the number that the core has found: the next one is to begin with that."""
        if view := self._views.get(node):
            self._views[node] = view._replace(event=replace(view.event, slots=slots))

    def remove(self, node: str) -> None:
        self._views.pop(node, None)

    def at(self, now_s: float) -> dict[str, NodeChanged]:
        return {name: view.at(now_s) for name, view in self._views.items()}

    def events(self) -> list[NodeChanged]:
        """Return the reports as they were made."""
        return [view.event for view in self._views.values()]

    def slots(self) -> int:
        return sum(view.event.slots for view in self._views.values())


class NodeViews:
    """The reports by node and replica; the latest last."""

    def __init__(self) -> None:
        self._views: dict[str, dict[str, ReportedNode]] = {}
        self.merged: dict[str, NodeChanged] = {}
        """The merged view of each node."""
        self._found: dict[str, int] = {}  # slots of nodes, as the core has found them

    def take(
        self, member: str, event: NodeChanged | NodeRemoved, now_s: float
    ) -> tuple[NodeChanged | NodeRemoved | None, bool]:
        """Take a report; return the event for the core, and whether others should probe."""
        if isinstance(event, NodeRemoved):
            return self.remove(member, event.name, now_s), False
        return self.change(member, event, now_s)

    def change(self, member: str, event: NodeChanged, now_s: float) -> tuple[NodeChanged, bool]:
        """Take a report; return the merged view, and whether others should probe."""
        views = self._views.setdefault(event.name, {})
        before = views.pop(member, None)
        views[member] = view = ReportedNode(event, now_s)
        if before is None and event.state == "offline":  # it has not seen it fail: no news
            self._views[event.name] = views = {member: view, **views}
        failed = event.state == "offline" and before is not None and before.event.state == "online"
        return self._merge(event.name, views, now_s), failed

    def reaches(self, member: str, node: str) -> bool:
        """Say whether a replica knows a node and does not report it as offline."""
        views = self._views.get(node)
        view = None if views is None else views.get(member)
        return view is not None and view.event.state != "offline"

    def remove(self, member: str, node: str, now_s: float) -> NodeChanged | NodeRemoved | None:
        """Forget a report; the node is gone when it was the last."""
        views = self._views.get(node)
        if views is None or views.pop(member, None) is None:
            return None
        if views:
            return self._merge(node, views, now_s)
        del self._views[node], self.merged[node]
        self._found.pop(node, None)
        return NodeRemoved(node)

    def change_slots(self, node: str, slots: int) -> NodeChanged | None:
        """Take the number that the core has found; return the view with that."""
        view = self.merged.get(node)
        if view is None:
            return None
        self._found[node] = slots
        self.merged[node] = view = replace(view, slots=slots)
        return view

    def _merge(self, node: str, views: dict[str, ReportedNode], now_s: float) -> NodeChanged:
        merged = _merged(views, now_s)
        if merged.slots_kind != "fixed":
            merged = replace(merged, slots=self._found.get(node, merged.slots))
        self.merged[node] = merged
        return merged

    def forget(self, member: str, now_s: float) -> list[NodeChanged | NodeRemoved]:
        changes = [self.remove(member, node, now_s) for node in list(self._views)]
        return [change for change in changes if change is not None]


def _merged(views: dict[str, ReportedNode], now_s: float) -> NodeChanged:
    said = [view.at(now_s) for view in views.values()]
    latest = said[-1]
    online = [view for view in said if view.state == "online"]
    slots = min((view.slots for view in online), default=latest.slots)
    draining = any(view.state == "draining" for view in said)
    state = "draining" if draining and latest.state == "online" else latest.state
    away_s = min(view.away_s for view in said if state != "draining" or view.state == "draining")
    is_new = all(view.is_new for view in said)
    merged = replace(latest, slots=slots, state=state, away_s=away_s, is_new=is_new)
    room = max(said, key=lambda view: view.kv_reading)
    if room.kv_reading != latest.kv_reading:
        merged = replace(merged, kv_free_tokens=room.kv_free_tokens, kv_reading=room.kv_reading)
    return latest if merged == latest else merged
