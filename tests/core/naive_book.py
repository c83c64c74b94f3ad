"""The state of the naive model, and the moves that change it: lists, dicts and nothing clever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.core import Expire, Route

from .naive_order import Accounts, Lane, NaiveNode, Ticket, first_in_line, first_of
from .naive_swaps import Decision, Services

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from forebay.core import Action, Arrived, Options

    from .naive_order import Line


@dataclass
class NaiveReturn:
    """A return ticket: who was refused, its number, and until when it counts."""

    arrival: Arrived
    seq: int
    until_s: float


class NaiveBook:
    """What is unfinished, and what must happen next."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.job_rank = len(options.priorities)
        self.now_s = 0.0
        self.seq = 0
        self.stopping = False
        self.tickets: dict[str, Ticket] = {}
        self.ended: dict[str, str] = {}
        self.nodes: dict[str, NaiveNode] = {}
        self.lanes: dict[tuple[str, str], int] = {}
        self.unlisted: set[tuple[str, str]] = set()
        self.arriving: set[tuple[str, str]] = set()
        self.births = 0
        self.accounts = Accounts(options)
        self.services = Services()
        self.affinity: dict[str, str] = {}
        self.return_tickets: dict[str, NaiveReturn] = {}
        self.refused: list[Arrived] = []
        """Those that got a return ticket, as they would come back."""
        self.steps = 0
        self.routes: list[Route] = []
        self.step_routes: list[Route] = []
        self.others: list[Action] = []

    # -- what the core answered

    def begin(self, now_s: float, actions: Sequence[Action]) -> None:
        """Take note of what the core did; what is too old ends before anything else."""
        self.now_s = max(self.now_s, now_s)
        self.routes = [action for action in actions if isinstance(action, Route)]
        self.others = [action for action in actions if not isinstance(action, Route)]
        self.step_routes = list(self.routes)
        self.steps += 1
        self.expire_due()

    def finish(self) -> None:
        """Check that the core did everything and nothing more."""
        self.drain()
        for ticket in self.tickets.values():
            ticket.fresh = False
        self.expire_due()
        self.drain()
        assert self.routes == [], f"must not start: {self.routes}"
        assert self.others == [], f"must not happen: {self.others}"

    def expect(self, matches: Callable[[Action], bool], what: str) -> Action:
        found = [action for action in self.others if matches(action)]
        assert found, f"{what} is missing from {self.others} and {self.routes}"
        self.others.remove(found[0])
        return found[0]

    # -- what is where

    def in_state(self, *states: str) -> list[Ticket]:
        return [ticket for ticket in self.tickets.values() if ticket.state in states]

    def queued(self) -> list[Ticket]:
        """Live requests that wait: what the bounds count."""
        return [t for t in self.in_state("waiting") if not t.arrival.job]

    def leases(self, name: str) -> int:
        tickets = self.tickets.values()
        return sum(1 for one in tickets if one.node == name and one.state == "running")

    def nodes_of(self, lane: Lane) -> dict[str, NaiveNode]:
        return {name: node for name, node in self.nodes.items() if node.serves(lane)}

    def is_up(self, lane: Lane) -> bool:
        return any(node.said.state == "online" for node in self.nodes_of(lane).values())

    def unsaid(self) -> list[NaiveNode]:
        return [node for node in self.nodes.values() if not node.has_said()]

    def hope(self, lane: Lane) -> str:
        """Say why one may wait where no node of a lane is up; empty where one may not."""
        nodes = [*self.nodes_of(lane).values(), *self.unsaid()]
        found = {node.hope(self.now_s, self.options.offline_wait_s) for node in nodes}
        return next((why for why in ("loading", "starting", "offline") if why in found), "")

    def is_free(self, name: str) -> bool:
        node = self.nodes[name]
        awake = not node.removed and node.said.state == "online" and self.now_s >= node.rest_until_s
        return awake and self.leases(name) < node.slots

    def rank_of(self, arrival: Arrived) -> int:
        names = self.options.priorities
        if arrival.job:
            return self.job_rank
        return names.index(arrival.priority if arrival.priority in names else "normal")

    # -- who runs next, and where

    def candidates(self, name: str) -> list[Ticket]:
        """What waits and may run on a node."""
        node = self.nodes[name]
        waiting = self.in_state("waiting")
        return [t for t in waiting if node.serves(t.lane) and name not in t.excluded]

    def next_on(self, name: str, *, look_only: bool = True) -> Ticket | None:
        """Return what a free slot of that node must go to."""
        if not self.is_free(name):
            return None
        tickets = self.candidates(name)
        if not tickets:
            return None
        node = self.nodes[name]
        tickets = self.decision(name, self.by_class(tickets, node)).runnable()
        tickets = node.before_the_struck(tickets)
        return first_of(tickets, node, self.accounts, look_only=look_only) if tickets else None

    def by_class(self, tickets: list[Ticket], node: NaiveNode) -> list[list[Ticket]]:
        """Return the tickets by class, the next one first; jobs are last."""

        def key(rank: int) -> tuple[bool, float, int]:
            weighted = self.options.class_order == "weighted" and rank != self.job_rank
            return (rank == self.job_rank, node.time.class_start(rank) if weighted else 0.0, rank)

        ranks = sorted({ticket.rank for ticket in tickets}, key=key)
        return [[ticket for ticket in tickets if ticket.rank == rank] for rank in ranks]

    def decision(self, name: str, classes: list[list[Ticket]]) -> Decision:
        """Look at what a node has in memory, and at who waits for what."""
        node = self.nodes[name]
        lines: dict[Line, list[Ticket]] = {}
        for tickets in classes:
            for ticket in tickets:
                lines.setdefault(ticket.line, []).append(ticket)
        return Decision(
            memory=node.memory,
            services=self.services,
            lanes=self.lanes_on(node),
            classes=classes,
            job_rank=self.job_rank,
            heads={line: first_in_line(line, some, self.accounts) for line, some in lines.items()},
            warm_elsewhere={line[1] for line in lines if self.is_warm_off(name, line[1])},
            now_s=self.now_s,
            options=self.options,
        )

    def lanes_on(self, node: NaiveNode) -> list[Lane]:
        lanes = [(*key, born) for key, born in self.lanes.items()]
        return [lane for lane in lanes if node.serves(lane)]

    def is_warm_off(self, name: str, lane: Lane) -> bool:
        """Say whether another node that is up has a lane's model in memory."""
        return any(
            other != name and node.said.state == "online" and node.memory.has(lane[0])
            for other, node in self.nodes_of(lane).items()
        )

    def preferred(self, names: Iterable[str], model: str, affinity: str) -> set[str]:
        """Return the nodes that an entry should go to: several only when never used."""

        def key(name: str) -> tuple[bool, bool, float, tuple[int, int]]:
            node = self.nodes[name]
            cold = not node.memory.has(model)
            busy = 0.3 * node.said.gpu_load + 0.7 * self.leases(name) / node.slots
            known = bool(affinity) and self.affinity.get(affinity) == name
            return (cold, not known, busy, node.used_at)

        names = list(names)
        best = min(map(key, names))
        return {name for name in names if key(name) == best}

    def drain(self) -> None:
        """Let the core start what must start, until no free slot has anybody left."""
        while self.in_state("waiting") and any(self.next_on(name) for name in self.nodes):
            assert self.routes, f"a free slot is left unused: {self._unused()}"
            route = next((r for r in self.routes if self.is_turn_of(r)), None)
            assert route is not None, f"{self.routes}: it is the turn of {self._unused()}"
            self.routes.remove(route)
            ticket = self.next_on(route.node, look_only=False)
            assert ticket is not None
            if ticket.fresh and self.step_routes == [route]:
                self.check_choice(ticket, route.node)
            self.start(ticket, route)

    def is_turn_of(self, route: Route) -> bool:
        ticket = self.next_on(route.node)
        return ticket is not None and ticket.id == route.id

    def check_choice(self, ticket: Ticket, name: str) -> None:
        """Of several nodes a newly eligible entry goes to the best, or the best it has alone."""
        mine = [other for other in self.nodes if self.next_on(other) is ticket]
        alone = [other for other in mine if len(self.candidates(other)) == 1]
        elsewhere = [other for other in mine if other != ticket.came_from]
        model, affinity = ticket.lane[0], ticket.arrival.affinity
        best = self.preferred(mine, model, affinity)
        for some in (alone, elsewhere if ticket.came_from else []):
            best |= self.preferred(some, model, affinity) if some else set()
        assert name in best, f"{ticket.id} should go to {best}, not {name}"

    def _unused(self) -> dict[str, str]:
        found = {name: self.next_on(name) for name in self.nodes}
        return {name: ticket.id for name, ticket in found.items() if ticket is not None}

    # -- the moves

    def start(self, ticket: Ticket, route: Route) -> None:
        node = self.nodes[route.node]
        queued = ticket.state != "new"
        if ticket.state == "waiting":
            self.stop_clock(ticket)
        ticket.attempt += 1
        expected = (queued, ticket.waited_s, ticket.attempt)
        assert (route.queued, route.waited_s, route.attempt) == expected, f"{route}: {expected}"
        ticket.state, ticket.returned, ticket.guest = "running", False, False
        ticket.since_s = node.memory.start(ticket, node.said.models, self.now_s)
        self.services.unserved_s[ticket.line] = self.now_s
        ticket.node = route.node
        self.charge(ticket, node)
        node.used_at = (self.steps, self.step_routes.index(route))
        if ticket.arrival.affinity:
            self.affinity[ticket.arrival.affinity] = route.node

    def stop_clock(self, ticket: Ticket) -> None:
        waited_s = self.now_s - ticket.since_s
        ticket.waited_s += waited_s
        ticket.wait_left_s -= waited_s
        ticket.promote_left_s -= waited_s

    def charge(self, ticket: Ticket, node: NaiveNode) -> None:
        """Charge the user for the first start only; the class for each, on the node of each."""
        if ticket.attempt == 1:
            ticket.charged_on, ticket.charged_line = node, ticket.line
            self.charge_user(ticket, node)
        self.charge_class(ticket, node)

    def charge_user(self, ticket: Ticket, node: NaiveNode) -> None:
        options, accounts, line = self.options, self.accounts, ticket.line
        arrival = ticket.arrival
        output = accounts.typical_output(ticket.lane, options.output_tokens_unmeasured)
        if arrival.output_limit:
            output = min(output, arrival.output_limit)
        tokens = options.input_weight * arrival.prompt_tokens + options.output_weight * output
        ticket.cost = tokens
        price = {"round_robin": 1.0, "fifo": 0.0, "tokens": tokens}[options.fairness]
        ticket.charged = price / accounts.weight[line, ticket.user]
        start = accounts.charge(line, ticket.user, ticket.charged)
        self.charge_elsewhere(ticket, node, ticket.charged)
        tag = node.time.place(line, start, accounts.largest[line])
        node.time.clock[ticket.rank] = tag

    def charge_class(self, ticket: Ticket, node: NaiveNode) -> None:
        options, tokens = self.options, ticket.cost
        if options.class_order == "weighted" and ticket.rank < self.job_rank:
            ticket.class_charged = tokens / options.weight_of(ticket.rank)
            node.time.class_clock = node.time.class_start(ticket.rank)
            node.time.class_tag[ticket.rank] = node.time.class_clock + ticket.class_charged

    def charge_elsewhere(self, ticket: Ticket, node: NaiveNode, amount: float) -> None:
        """A user known in another lane of the class on this node has used its capacity too."""
        mine = ticket.charged_line
        assert mine is not None
        lines = {line for line, user in self.accounts.counter if user == ticket.user}
        for line in lines - {mine}:
            if line[0] == mine[0] and node.serves(line[1]) and self.lives(line[1]):
                self.accounts.correct(line, ticket.user, amount)

    def lives(self, lane: Lane) -> bool:
        return self.lanes.get(lane[:2]) == lane[2]

    def settle(self, ticket: Ticket, prompt: int, output: int) -> None:
        """Put the charge right when the real cost is known."""
        if output < 0:
            return
        node = self.nodes[ticket.node]
        prompt = ticket.arrival.prompt_tokens if prompt < 0 else prompt
        real = self.options.input_weight * prompt + self.options.output_weight * output
        if self.options.fairness == "tokens":
            assert ticket.charged_line is not None
            weight = self.accounts.weight[ticket.charged_line, ticket.user]
            change = (real - ticket.cost) / weight
            self.give(ticket, node, change)
            self.accounts.note(ticket.charged_line, ticket.charged + change)
        if ticket.class_charged:
            change = (real - ticket.cost) / self.options.weight_of(ticket.rank)
            self.give_class(ticket, node, change)

    def refund(self, ticket: Ticket) -> None:
        """A retry that ends in line has used nothing."""
        if ticket.charged_on is not None:
            self.give(ticket, ticket.charged_on, -ticket.charged)

    def refund_class(self, ticket: Ticket) -> None:
        node = self.nodes[ticket.node]
        if ticket.class_charged:
            self.give_class(ticket, node, -ticket.class_charged)
        ticket.class_charged = 0.0

    def give(self, ticket: Ticket, node: NaiveNode, amount: float) -> None:
        assert ticket.charged_line is not None
        self.accounts.correct(ticket.charged_line, ticket.user, amount)
        self.charge_elsewhere(ticket, node, amount)

    def give_class(self, ticket: Ticket, node: NaiveNode, amount: float) -> None:
        tag = node.time.class_tag.get(ticket.rank, 0.0) + amount
        node.time.class_tag[ticket.rank] = max(tag, node.time.class_clock)

    def stand_in_line(self, ticket: Ticket) -> None:
        """Let a ticket compete, and its waiting clock run."""
        ticket.state, ticket.since_s, ticket.fresh = "waiting", self.now_s, True
        if not ticket.returned:
            mine = [t for t in self.in_state("waiting") if t.line == ticket.line and not t.returned]
            if not any(t is not ticket and t.user == ticket.user for t in mine):
                self.accounts.lift(ticket.line, ticket.user)
        self.seq += 1
        ticket.stood = self.seq
        self.note_line(ticket, self.now_s)
        if not ticket.arrival.job:
            ticket.deadline_s = self.now_s + ticket.wait_left_s

    def note_line(self, ticket: Ticket, since_s: float) -> None:
        """Take note of since when a line is not served which has just become one."""
        if sum(other.line == ticket.line for other in self.in_state("waiting")) == 1:
            self.services.unserved_s[ticket.line] = since_s
            self.services.opened[ticket.line] = ticket.stood

    def end(self, ticket: Ticket, how: str) -> None:
        """Close a ticket."""
        if ticket.state == "waiting":
            self.refund(ticket)
        del self.tickets[ticket.id]
        self.ended[ticket.id] = how
        if not any(other.user == ticket.user for other in self.tickets.values()):
            self.accounts.forget(ticket.user, self.options.idle_users_max)
        self.learn_lanes()

    def learn_lanes(self) -> None:
        """A lane is born when a node lists it; it dies unlisted, with nothing of it unfinished."""
        listed = {
            (model, family)
            for node in self.nodes.values()
            for model in node.said.models
            for family in node.said.families
            if not node.removed
        }
        used = self.arriving | {ticket.lane[:2] for ticket in self.tickets.values()}
        for key in sorted(listed - self.lanes.keys()):
            self.births += 1
            self.lanes[key] = self.births
        self.lanes = {key: born for key, born in self.lanes.items() if key in listed | used}
        self.unlisted &= self.lanes.keys() - listed

    def expire_due(self) -> None:
        """End what is too old; one whose turn to compete has only just come may still start."""
        told = {action.id for action in self.others if isinstance(action, Expire)}
        while due := [t for t in self.in_state("waiting") if t.is_too_old(self.now_s, told)]:
            ticket = min(due, key=lambda t: (t.deadline_s, t.stood))
            assert all(self.next_on(name) is not ticket for name in self.nodes if ticket.fresh)
            self.expire(ticket)

    def count_promotions(self) -> None:
        """An entry counts one class higher for each interval waited in line."""
        aging = [t for t in self.in_state("waiting") if 0 < t.rank < self.job_rank]
        for ticket in sorted(aging, key=lambda t: (t.since_s + t.promote_left_s, t.stood)):
            if self.options.aging_s and ticket.since_s + ticket.promote_left_s <= self.now_s:
                self.promote(ticket)

    def expire(self, ticket: Ticket) -> None:
        waited_s = ticket.waited_s + self.now_s - ticket.since_s
        code = "queue_timeout" if self.is_up(ticket.lane) else "no_node"
        if code == "no_node" and self.hope(ticket.lane) in ("loading", "starting"):
            code = "model_loading"

        def matches(action: Action) -> bool:
            if not isinstance(action, Expire):
                return False
            return (action.id, action.code, action.waited_s) == (ticket.id, code, waited_s)

        self.expect(matches, f"Expire({ticket.id}, {code}, {waited_s})")
        self.end(ticket, "expired")

    def promote(self, ticket: Ticket) -> None:
        ticket.rank -= 1
        ticket.promote_left_s += self.options.aging_s
        self.accounts.open(ticket.line, ticket.user, ticket.arrival.weight)
        since_s, deadline_s = ticket.since_s, ticket.deadline_s
        self.stand_in_line(ticket)
        ticket.since_s, ticket.deadline_s = since_s, deadline_s
        self.note_line(ticket, since_s)

    # -- positions

    def position(self, ticket: Ticket) -> int:
        """Run the lane dry on paper and say when the ticket's turn comes."""
        lane = [t for t in self.in_state("waiting") if t.lane == ticket.lane]
        ahead = sum(1 for other in lane if other.rank < ticket.rank)
        left = sorted((t for t in lane if t.rank == ticket.rank), key=lambda t: t.seq)
        counter = {t.user: self.accounts.standing(t.line, t.user) for t in left}
        clock = self.accounts.clock.get(ticket.line, 0.0)
        unit = 0.0 if self.options.fairness == "fifo" else 1.0
        while left:
            heads = {t.user: t for t in reversed(left)}
            usual = min(heads.values(), key=lambda t: (counter[t.user], t.seq))
            head = next((t for t in left if t.returned), usual)
            left.remove(head)
            ahead += 1
            if head is ticket:
                return ahead
            if head.returned:
                continue  # charged already
            start = max(counter[head.user], clock - self.accounts.burst)
            clock = max(clock, start)
            counter[head.user] = start + unit / self.accounts.weight[head.line, head.user]
        raise AssertionError(f"{ticket.id} does not wait")
