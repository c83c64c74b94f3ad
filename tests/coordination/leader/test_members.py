"""The replicas that a leader knows."""

from __future__ import annotations

from forebay.coordination.leader.lending import Loans
from forebay.coordination.leader.members import Members
from forebay.coordination.leader.tickets import FleetTickets, Member
from forebay.coordination.protocol.messages import (
    ITEMS_MAX,
    About,
    MemberStatus,
    ProbeNode,
)
from forebay.core import Arrived, Options


def members(*names: str) -> Members:
    made = Members("me", 3, ["me", *names])
    for name in ("me", *names):
        made.add(Member(About(name), 5, 0.0))
    return made


def test_a_long_list_of_orders_goes_in_pieces_of_bearable_size_and_in_order() -> None:
    made = members("b")
    made.take_orders()
    for number in range(2 * ITEMS_MAX + 1):
        made.send_to("b", ProbeNode(f"gpu{number}"))
    orders = [order for _, order in made.take_orders()]
    assert [(order.number, len(order.items)) for order in orders] == [
        (0, ITEMS_MAX),
        (1, ITEMS_MAX),
        (2, 1),
    ]
    assert [item for order in orders for item in order.items] == [
        ProbeNode(f"gpu{number}") for number in range(2 * ITEMS_MAX + 1)
    ]


def test_standings_tell_what_each_has() -> None:
    made, loans = members("b"), Loans(Options(), lambda _: True)
    loans.lend("b", "gpu", 2, 0.0)
    replica = made.get("b")
    assert replica is not None
    tickets = FleetTickets()
    for number in range(3):
        tickets.add(replica, Arrived(f"t{number}", "llama"))
    for name in ("t1", "t2"):
        tickets.run(replica.tickets[name], "gpu")
    assert made.statuses(loans, 1.5)[1] == MemberStatus(About("b"), 1, 2, 2, 1.5)
    tickets.remove(replica.tickets["t2"])
    assert made.statuses(loans, 1.5)[1] == MemberStatus(About("b"), 1, 1, 2, 1.5)
