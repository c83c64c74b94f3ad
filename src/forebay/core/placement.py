"""Which node an entry should run on: the one where it ends first.

**Cost**, in seconds from a start on a node n to the end of the answer:

    cost(n) = load(n) + x(n) * work(n)        work(n) = a * uncached(n) + rest

`load` is 0 where the model is in memory, what is left of a load under way, else what a load takes.
`a` is the lane's time to read a prompt token, `uncached` what of the prompt is not cached on n,
`rest` what an answer takes, and x(n) by how much longer all this takes on n than usual
(`forebay.core.speeds`). Nodes whose costs differ by less than 15 % or 20 ms are alike: there the
conversation's node goes first, then the lowest `0.3 * gpu_load + 0.7 * in_flight / slots`, then the
one with more of the prompt cached (few conversations are named), then the least recently used. A
node of unknown speed counts as the fastest while nothing runs there, so that it is tried, and as
usual until its first answer.

**Waiting for a better node.** P is full and n the best that is free. P is worth waiting for if

    crowd * [load(n) - load(P) + x(P) * (work(n) - work(P))] + idle(P) * [x(n) - x(P)] * work(n)

is more than the turn of those held for P before it. The first bracket is work that nobody has to
do: room for all, so it counts once more for each mean service that the request has waited (`crowd`;
its own wait, for a light user does not pay for the backlog of another). The second only passes the
fast node from one to another: it counts by the share of P's slots that was free lately (`idle`).
Nobody is held back from a node with the model that was not measured for ten minutes: a start there
measures it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from forebay.core import swaps
from forebay.core.charging import expected
from forebay.core.memory import is_warm, load_left_s
from forebay.core.nodes import has_room, idle_share, score
from forebay.core.records import Hold
from forebay.core.service_times import TOKENS_MAX
from forebay.core.speeds import Speed

if TYPE_CHECKING:
    from forebay.core.actions import WhyBetter
    from forebay.core.cluster import Cluster
    from forebay.core.events import Arrived
    from forebay.core.options import Options
    from forebay.core.records import Entry, Lane, Names, Node, WaitQueue

ALIKE: Final = 1.15
ALIKE_S: Final = 0.02
"""Nodes whose costs differ by less than one of these are alike."""
GAIN_S: Final = 0.05
"""Nobody waits for less: a person does not notice it, and to keep a request back costs more."""
STALE_S: Final = 600.0
"""From when on a measurement is too old to keep anybody back."""
AS_FAST: Final = 1.5
"""Up to that, a node is as fast as another; only slots of such nodes are lent."""


class Start:
    """One that may start now, and what that would take it on each node."""

    def __init__(
        self, cluster: Cluster, queue: WaitQueue, arrival: Arrived, excluded: Names, now_s: float
    ) -> None:
        lane = queue.lane
        self.cluster = cluster
        self.queue = queue
        self.lane = lane
        self.arrival = arrival
        self.excluded = excluded
        self.now_s = now_s
        self.token_s = lane.prefill.token_s()
        self.rest_s = lane.work.rest_s

    def cost_s(self, node: Node) -> float:
        """Return how long it takes from a start on a node to the end of the answer."""
        left_s = load_left_s(node, self.lane.model, self.now_s)
        return left_s + self._x(node) * self._work_s(node)

    def hold_for(self, node: Node, waited_s: float) -> Hold | None:
        """Return what it should wait for rather than start on the best free node, if anything."""
        lane, now_s, model = self.lane, self.now_s, self.lane.model
        here = lane.speeds.get(node.name)
        if (here is None or now_s - here.measured_s > STALE_S) and is_warm(node, model):
            return None
        load_s, work_s, x = load_left_s(node, model, now_s), self._work_s(node), self._x(node)
        crowd = 1.0 + waited_s / lane.work.service_s
        best: Hold | None = None
        for other in lane.nodes.values():
            speed = lane.speeds.get(other.name)
            if speed is None or other is node or not self._can_await(other):
                continue
            other_x = speed.x(float(other.slots - 1))
            loads_s = load_s - load_left_s(other, model, now_s)
            reads_s = other_x * (work_s - self._work_s(other))
            faster_s = (x - other_x) * work_s
            counted = idle_share(other, now_s) if faster_s > 0.0 else 1.0
            gain_s = crowd * (loads_s + reads_s) + counted * faster_s
            if gain_s > GAIN_S:
                before = sum(one.queue.rank <= self.queue.rank for one in other.held)
                gain_s -= float(before + 1) * speed.service_s() / float(other.slots)
            if gain_s > (GAIN_S if best is None else best.gain_s):
                why = _why_better(loads_s, reads_s, faster_s)
                until_s = now_s + load_s + x * work_s
                best = Hold(other, why, gain_s, x / other_x, until_s)
        return best

    def _can_await(self, node: Node) -> bool:
        """Say whether a node will take it that is full now."""
        reaches, options = self.cluster.reaches, self.cluster.options
        if not node.slots or has_room(node) or node.state != "online":
            return False
        if self.now_s < node.rest_until_s or node.name in self.excluded:
            return False
        if not swaps.may_use(node, self.lane.model, self.queue.rank, options):
            return False
        return reaches is None or reaches(self.arrival.id, node.name)

    def best(self, nodes: list[Node]) -> Node:
        """Return the one of some nodes where it ends first."""
        costs_s = [self.cost_s(node) for node in nodes]
        least_s = min(costs_s)
        most_s = max(ALIKE * least_s, least_s + ALIKE_S)
        affinity = self.arrival.affinity
        favourite = self.cluster.affinities.get(affinity) if affinity else None
        alike = [node for node, cost_s in zip(nodes, costs_s, strict=True) if cost_s <= most_s]
        best = alike[0]
        for node in alike:
            if node.name == favourite:
                return node
            if node is not best and self._is_preferred(node, best):
                best = node
        return best

    def _is_preferred(self, node: Node, other: Node) -> bool:
        """Say which of two nodes that are alike: the less busy one, with more cached, idle longer.

        One by one: compiled code would make objects of tuples to compare them.
        """
        busy, others = score(node), score(other)
        if busy != others:
            return busy < others
        if self.arrival.prefix:
            cached = node.prefixes.cached_tokens(self.arrival)
            of_other = other.prefixes.cached_tokens(self.arrival)
            if cached != of_other:
                return cached > of_other
        return node.used_at < other.used_at

    def _x(self, node: Node) -> float:
        speed = self.lane.speeds.get(node.name)
        if speed is not None:
            return speed.x(float(len(node.leases)))
        return 1.0 if node.leases else _best_x(self.lane)

    def _work_s(self, node: Node) -> float:
        arrival = self.arrival
        tokens = min(arrival.prompt_tokens, TOKENS_MAX)
        if arrival.prefix:
            tokens = max(0, tokens - node.prefixes.cached_tokens(arrival))
        return self.token_s * float(tokens) + self.rest_s


def choose(
    cluster: Cluster, queue: WaitQueue, arrival: Arrived, excluded: Names, now_s: float
) -> Node | None:
    """Return the best open node for an entry of that queue that its owner reaches, or None."""
    found = usable(cluster, queue, arrival, excluded, cluster.open)
    if len(found) > 1:
        return Start(cluster, queue, arrival, excluded, now_s).best(found)
    return found[0] if found else None


def usable(
    cluster: Cluster, queue: WaitQueue, arrival: Arrived, excluded: Names, among: dict[str, Node]
) -> list[Node]:
    """Return the nodes that an entry of a queue may start on, of those `among` which it looks."""
    nodes, options, found = queue.lane.nodes, cluster.options, []
    for name in nodes if len(nodes) < len(among) else among:
        node = nodes.get(name)
        if node is None or name not in among or (excluded and name in excluded):
            continue
        if node.room is not None and not has_memory_for(node, queue.lane, arrival, options):
            continue
        if not node.holds_all and not _may_start(node, queue.lane.model, queue.rank, options):
            continue
        if cluster.reaches is None or cluster.reaches(arrival.id, name):
            found.append(node)
    return found


def measure(node: Node, entry: Entry, service_s: float, output_tokens: int, now_s: float) -> None:
    """Learn from a service without a load how fast its node is."""
    lane = entry.queue.lane
    prompt = min(entry.arrival.prompt_tokens, TOKENS_MAX)
    reading_s = lane.prefill.token_s() * float(max(0, prompt - entry.cached_tokens))
    length = float(min(output_tokens, TOKENS_MAX))
    lane.work.add(service_s, reading_s, length)
    work_s = reading_s + lane.work.rest_of_s(length)
    if work_s > 0.0 and node.name in lane.nodes:
        speed = lane.speeds.get(node.name)
        if speed is None:
            speed = lane.speeds[node.name] = Speed()
        speed.add(service_s, work_s, (entry.others + float(len(node.leases))) / 2.0, now_s)


def is_as_fast_as_any(node: Node) -> bool:
    """Say whether nobody whom a node serves would rather have another: its slots may be lent."""
    for lanes in node.lanes.values():
        for lane in lanes.values():
            speed = lane.speeds.get(node.name)
            if speed is not None and speed.x(0.0) > AS_FAST * _best_x(lane):
                return False
    return True


def has_memory_for(node: Node, lane: Lane, arrival: Arrived, options: Options) -> bool:
    """Say whether a node that tells of its key-value cache has room for an arrival."""
    room = node.room
    if room is None or not (node.leases or node.lent):
        return True
    return expected(lane, arrival, options) <= room.left_tokens


def _best_x(lane: Lane) -> float:
    """Return the `x` of the fastest node of a lane, with nothing else there."""
    return min([speed.x(0.0) for speed in lane.speeds.values()], default=1.0)


def _why_better(loads_s: float, reads_s: float, faster_s: float) -> WhyBetter:
    if loads_s >= reads_s and loads_s >= faster_s:
        return "memory"
    return "prompt" if reads_s >= faster_s else "speed"


def _may_start(node: Node, model: str, rank: int, options: Options) -> bool:
    """Say whether an entry may go straight to a node that swaps models.

    A drain keeps others out, but not a higher class whose model is still warm.
    A job that would put a model out must wait in a queue, where the swap rule holds it.
    """
    if swaps.may_use(node, model, rank, options):
        return True
    if node.swap_target is not None:
        return False
    return swaps.has_room(node) if rank == len(options.priorities) else swaps.may_load(node)
