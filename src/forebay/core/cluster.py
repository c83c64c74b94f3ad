"""All nodes that are configured or registered, and the lanes they make up.

Lanes exist only for models that a node lists, so junk names cost nothing.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from forebay.core import memory, nodes, retries
from forebay.core.records import Lane, Node

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from forebay.core.actions import WaitReason
    from forebay.core.events import NodeChanged
    from forebay.core.options import Options
    from forebay.core.records import Entry

    Reaches: TypeAlias = Callable[[str, str], bool]


OUTLOOKS: Final[tuple[WaitReason, ...]] = ("loading", "starting", "offline")
"""Why one may wait for nodes that are not up, the surest first."""


class Cluster:
    """The nodes and the lanes."""

    def __init__(self, options: Options, reaches: Reaches | None) -> None:
        self.options = options
        self.reaches = reaches  # whether the owner of a ticket gets to a node; None: everywhere
        self._ranks = len(options.priorities) + 1  # the last one is for jobs
        self.nodes: dict[str, Node] = {}  # those that were removed, until their leases are back
        self.lanes: dict[tuple[str, str], Lane] = {}
        self._nodes_seen = 0
        self.open: dict[str, Node] = {}  # with a free slot that nothing waiting can use now
        self.affinities: dict[str, str] = {}  # affinity -> node, least recently used first

    def change(self, event: NodeChanged, now_s: float) -> Node:
        """Add a node or take over what is new about it."""
        node = self.find(event.name)
        node.removed = False
        nodes.update(node, event, now_s)
        wanted = {(model, family) for model in node.models for family in node.families}
        for lane in lanes_on(node):
            if (lane.model, lane.family) not in wanted:
                self._detach(node, lane)
        for key in sorted(wanted):
            serves = key[0] not in event.failing and nodes.may_run(node, key[0])
            self._attach(node, self.lane(*key), serves=serves)
        return node

    @property
    def unreported(self) -> list[Node]:
        """Return the nodes of which it is not known yet what they have: it may be anything."""
        silent = [node for node in self.nodes.values() if not node.models and not node.removed]
        return [node for node in silent if node.is_new or node.state == "loading"]

    def outlook(self, lane: Lane | None, now_s: float) -> WaitReason | None:
        """Say why one may wait where no node of a lane is up; None where that is of no use.

        A node that has not said what it has may have anything.
        """
        hopes = chain(lane.listed.values() if lane is not None else (), self.unreported)
        reasons = {nodes.outlook(node, now_s, self.options.offline_wait_s) for node in hopes}
        return next((reason for reason in OUTLOOKS if reason in reasons), None)

    def count_trial(self, node: Node, model: str) -> None:
        """Keep others off a model on trial while one of its requests runs there, and no longer.

        Call it when a lease was taken or given back on a node with models on trial.
        """
        if model in node.on_trial:
            for lane in memory.lanes_of(node, model):
                self._attach(node, lane, serves=nodes.may_run(node, model))

    def remove(self, name: str) -> Node | None:
        """Take a node out; what runs there keeps its lease until it ends."""
        node = self.nodes.get(name)
        if node is None or node.removed:
            return None
        for lane in lanes_on(node):
            self._detach(node, lane)
        node.removed = True
        node.broken_off.clear()
        node.models = node.on_trial = ()
        node.state = "offline"
        self.close(node)
        return node

    def find(self, name: str) -> Node:
        """Return a node; one that is not known is as one that was removed."""
        node = self.nodes.get(name)
        if node is None:
            self._nodes_seen += 1
            node = self.nodes[name] = Node(name, self._nodes_seen, self._ranks)
            node.removed = True
        return node

    def close(self, node: Node) -> None:
        """Let nothing go straight to a node; drop it if it was removed and is idle."""
        if self.nodes.get(node.name) is node:  # else it has gone, and another come in its place
            self.open.pop(node.name, None)
            if node.removed and not node.leases and not node.lent:
                del self.nodes[node.name]

    def readmit(self, node: Node) -> None:
        """After a good probe, give the node back to retries that no other node can take.

        And to those who did not reach it before, and do now.
        """
        for lane in lanes_on(node):
            for queue in lane.queues:
                for excluded, group in list(queue.returned.items()):
                    if node.name not in excluded:
                        continue
                    stuck = not any(
                        other.state == "online" and name not in excluded
                        for name, other in lane.nodes.items()
                    )
                    for entry in list(group):
                        wanted = stuck or node.name in entry.unreached
                        if wanted and self.is_reached(entry, node):
                            retries.readmit(queue.returned, entry, node.name)

    def is_reached(self, entry: Entry, node: Node) -> bool:
        """Say whether the owner of an entry gets to a node."""
        return self.reaches is None or self.reaches(entry.id, node.name)

    def note_affinity(self, affinity: str, node: Node) -> None:
        """Remember where an affinity was served last, forgetting the oldest."""
        known = self.affinities
        known.pop(affinity, None)
        known[affinity] = node.name
        while len(known) > self.options.affinities_max:
            del known[next(iter(known))]

    def forget_if_unused(self, lane: Lane) -> None:
        """Drop a lane that no node lists, once nothing is left in it."""
        if not lane.listed and not lane.unfinished:
            self.lanes.pop((lane.model, lane.family), None)

    def lane(self, model: str, family: str) -> Lane:
        """Return a lane, new if there is none; one that no node lists is dropped when empty."""
        lane = self.lanes.get((model, family))
        if lane is None:
            lane = Lane(model, family, self._ranks, self.options.queue_burst())
            self.lanes[model, family] = lane
        return lane

    def _attach(self, node: Node, lane: Lane, *, serves: bool) -> None:
        lane.listed[node.name] = node
        if serves:
            lane.nodes[node.name] = node
        else:
            lane.nodes.pop(node.name, None)
        node.lanes.setdefault(lane.model, {})[lane.family] = lane
        lane.is_unlisted = False
        recount([lane])

    def _detach(self, node: Node, lane: Lane) -> None:
        lane.nodes.pop(node.name, None)
        lane.speeds.pop(node.name, None)
        lane.listed.pop(node.name, None)
        node.lanes[lane.model].pop(lane.family, None)
        recount([lane])
        for queue in lane.queues:
            node.shares.offsets.pop(queue, None)
        self.forget_if_unused(lane)


def recount(lanes: list[Lane]) -> None:
    """Add up the slots of lanes again, after a node's changed."""
    for lane in lanes:
        online = [node for node in lane.listed.values() if node.state == "online"]
        lane.slots = sum([node.slots for node in online])
        lane.is_up = bool(online)


def lanes_on(node: Node) -> list[Lane]:
    """Return all lanes that a node serves, or may again."""
    return [lane for lanes in node.lanes.values() for lane in lanes.values()]
