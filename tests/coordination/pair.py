"""A leader and its replicas without any store: messages are handed over, or not."""

from __future__ import annotations

from forebay.coordination.follower.follower import Follower
from forebay.coordination.follower.loan_reports import LoanReports
from forebay.coordination.leader.leader import Leader
from forebay.coordination.protocol.messages import About, Orders, ReplicaBatch
from forebay.core import Action, Arrived, Event, NodeChanged, Options, Route, Snapshot, Totals, Wait

LEASE_S = 3.0
OPTIONS = Options(fairness="fifo", max_size=100)


class LocalFleet:
    """One leader, under the name of a replica that has no requests of its own."""

    def __init__(
        self,
        epoch: int = 1,
        name: str = "lead-1",
        totals: Totals | None = None,
        expected: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.now_s = 10.0
        self.leader = Leader(About(name), epoch, OPTIONS, LEASE_S, expected)
        self.leader.begin(totals or Totals(), {}, self.now_s)
        self.replicas: dict[str, LocalReplica] = {}
        self.join(name)

    def join(self, name: str, *views: NodeChanged) -> LocalReplica:
        replica = self.replicas[name] = LocalReplica(name)
        for view in views:
            replica.post(view, self)
        self.take_over(replica)
        return replica

    def take_over(self, replica: LocalReplica) -> None:
        """Have a replica follow this leader."""
        self.replicas[replica.name] = replica
        replica.follower.join(self.leader.epoch, self.name, self.now_s)
        self.settle()

    def settle(self) -> None:
        """Carry messages until there are none."""
        talked = True
        while talked:
            talked = sum(replica.talk(self) for replica in self.replicas.values()) > 0
        assert self.leader.errors == []

    def observed(self) -> Totals:
        return self.leader.totals()


def new_follower(member: str, options: Options = OPTIONS, lease_s: float = LEASE_S) -> Follower:
    """Return a replica's half whose callers' ids are the same everywhere."""
    return Follower(About(member), options, lease_s, LoanReports(lambda arrival: arrival))


class LocalReplica:
    """One replica."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.follower = new_follower(name)
        self.actions: list[Action] = []

    def post(self, event: Event, fleet: LocalFleet, *, settle: bool = False) -> None:
        route = None
        if isinstance(event, Arrived):
            route = self.follower.start_on_loan(event, fleet.now_s)
        if route is not None:
            self.actions.append(route)
            self.follower.report_one(route.id)
        else:
            self.actions += self.follower.post(event, fleet.now_s)
        if settle:
            fleet.settle()

    def talk(self, fleet: LocalFleet) -> bool:
        batches = self.follower.take_batches()
        for batch in batches:
            fleet.leader.receive(batch, fleet.now_s)
        orders = orders_for(fleet, self.name)
        for one in orders:
            self.hear(one, fleet)
        return bool(batches or orders)

    def hear(self, orders: Orders, fleet: LocalFleet) -> None:
        self.actions += self.follower.receive(orders, fleet.now_s)

    def send(self, batches: list[ReplicaBatch], fleet: LocalFleet) -> None:
        for batch in batches:
            fleet.leader.receive(batch, fleet.now_s)

    @property
    def started(self) -> list[str]:
        return [action.id for action in self.actions if isinstance(action, Route)]

    @property
    def waiting(self) -> list[str]:
        return [action.id for action in self.actions if isinstance(action, Wait)]

    @property
    def totals(self) -> list[Totals]:
        return [action.totals for action in self.actions if isinstance(action, Snapshot)]


def orders_for(fleet: LocalFleet, name: str) -> list[Orders]:
    """Return what the leader says to one replica; the others are not heard meanwhile."""
    members = fleet.leader.members
    one = members.orders_for(name)
    asked = [
        Orders(fleet.leader.epoch, fleet.name, generation, -1, ())
        for who, generation in list(members._unknown.items())
        if who == name
    ]
    members._unknown.pop(name, None)
    return asked + ([one] if one is not None else [])
