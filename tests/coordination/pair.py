"""A leader and its replicas without any store: messages are handed over, or not."""

from __future__ import annotations

from forebay.coordination.follower.follower import Follower
from forebay.coordination.leader.leader import Leader
from forebay.coordination.protocol.messages import About, Orders, ReplicaBatch
from forebay.core import Action, Event, NodeChanged, Options, Route, Snapshot, Totals, Wait

LEASE_S = 3.0
OPTIONS = Options(fairness="fifo", max_size=100)


class Office:
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
        self.desks: dict[str, Desk] = {}
        self.join(name)

    def join(self, name: str, *views: NodeChanged) -> Desk:
        desk = self.desks[name] = Desk(name)
        for view in views:
            desk.post(view, self)
        self.take_over(desk)
        return desk

    def take_over(self, desk: Desk) -> None:
        """Have a replica follow this leader."""
        self.desks[desk.name] = desk
        desk.follower.join(self.leader.epoch, self.name, self.now_s)
        self.settle()

    def settle(self) -> None:
        """Carry messages until there are none."""
        talked = True
        while talked:
            talked = sum(desk.talk(self) for desk in self.desks.values()) > 0
        assert self.leader.errors == []

    def observed(self) -> Totals:
        return self.leader.totals()


class Desk:
    """One replica."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.follower = Follower(About(name), OPTIONS, LEASE_S)
        self.actions: list[Action] = []

    def post(self, event: Event, office: Office, *, settle: bool = False) -> None:
        self.actions += self.follower.post(event, office.now_s)
        if settle:
            office.settle()

    def talk(self, office: Office) -> bool:
        batches = self.follower.take_batches()
        for batch in batches:
            office.leader.receive(batch, office.now_s)
        orders = orders_for(office, self.name)
        for one in orders:
            self.hear(one, office)
        return bool(batches or orders)

    def hear(self, orders: Orders, office: Office) -> None:
        self.actions += self.follower.receive(orders, office.now_s)

    def send(self, batches: list[ReplicaBatch], office: Office) -> None:
        for batch in batches:
            office.leader.receive(batch, office.now_s)

    @property
    def started(self) -> list[str]:
        return [action.id for action in self.actions if isinstance(action, Route)]

    @property
    def waiting(self) -> list[str]:
        return [action.id for action in self.actions if isinstance(action, Wait)]

    @property
    def totals(self) -> list[Totals]:
        return [action.totals for action in self.actions if isinstance(action, Snapshot)]


def orders_for(office: Office, name: str) -> list[Orders]:
    """Return what the leader says to one replica; the others are not heard meanwhile."""
    members = office.leader.members
    one = members.orders_for(name)
    asked = [
        Orders(office.leader.epoch, office.name, generation, -1, ())
        for who, generation in list(members._unknown.items())
        if who == name
    ]
    members._unknown.pop(name, None)
    return asked + ([one] if one is not None else [])
