"""The replicas that a leader knows."""

from __future__ import annotations

from forebay.coordination.leader.lending import Loans
from forebay.coordination.leader.members import Members
from forebay.coordination.leader.tickets import FleetTickets, Member
from forebay.coordination.protocol.messages import (
    ITEMS_MAX,
    About,
    MemberStatus,
    Orders,
    ProbeNode,
    ReplicaBatch,
    Resigned,
    Resync,
)
from forebay.core import Arrived, Options


def members(*names: str) -> Members:
    made = Members("me", 3, ["me", *names])
    for name in ("me", *names):
        made.add(Member(About(name), 5, 0.0))
    return made


def test_those_expected_are_greeted_once_and_not_oneself() -> None:
    made = Members("me", 3, ["c", "me", "b"])
    assert made.has_outgoing()
    assert made.take_orders() == [(name, Orders(3, "me", 0, -1, ())) for name in "bc"]
    assert not made.has_outgoing()
    assert made.take_orders() == []


def test_orders_are_numbered_for_each_replica() -> None:
    made = members("b", "c")
    made.take_orders()
    made.send_to("b", ProbeNode("gpu"))
    assert made.take_orders() == [("b", Orders(3, "me", 5, 0, (ProbeNode("gpu"),)))]
    made.send_to("b", ProbeNode("gpu"))
    made.send_to("c", ProbeNode("gpu"))
    made.send_to("gone", ProbeNode("gpu"))
    assert [(name, orders.number) for name, orders in made.take_orders()] == [("b", 1), ("c", 0)]


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


def test_what_is_for_oneself_stays_here() -> None:
    made = members("b")
    made.take_orders()
    made.send_to("me", ProbeNode("gpu"))
    assert not made.has_outgoing()
    assert made.take_orders() == []
    assert made.orders_for("me") == Orders(3, "me", 5, 0, (ProbeNode("gpu"),))
    assert made.orders_for("me") is None
    assert made.orders_for("gone") is None


def test_who_is_not_known_is_asked_once_under_its_generation() -> None:
    made = members()
    made.request_announcement(ReplicaBatch("b", 7, 4, ()))
    made.request_announcement(ReplicaBatch("b", 7, 5, ()))
    assert made.take_orders() == [("b", Orders(3, "me", 7, -1, (Resync(),)))]


def test_an_announcement_is_news_only_if_it_was_not_heard_even_by_one_now_forgotten() -> None:
    made = members("b")
    assert not made.begins_announcement(ReplicaBatch("b", 5, 0, ()))
    assert made.begins_announcement(ReplicaBatch("b", 6, 0, ()))
    assert not made.begins_announcement(ReplicaBatch("b", 6, 1, ()))
    made.pop("b")
    assert not made.begins_announcement(ReplicaBatch("b", 5, 0, ()))
    assert made.begins_announcement(ReplicaBatch("b", 6, 0, ()))
    assert made.begins_announcement(ReplicaBatch("c", 1, 0, ()))


def test_a_leader_says_goodbye_to_all() -> None:
    made = members("b", "c")
    made.take_orders()
    made.resign(leaves=False)
    assert [orders.items for _, orders in made.take_orders()] == [(Resigned(),), (Resigned(),)]


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


def test_others_leave_out_one() -> None:
    made = members("b", "c")
    assert [one.about.member for one in made.others()] == ["b", "c"]
    assert [one.about.member for one in made.others("b")] == ["me", "c"]


def test_who_was_not_heard_for_a_lease_is_silent_and_the_others_tell_when_to_look_again() -> None:
    made = members("b", "c")
    assert made.silent(5.0, 4.9) == ([], 5.0)
    heard = made.get("c")
    assert heard is not None
    heard.heard_s = 3.0
    assert made.silent(5.0, 5.0) == (["b"], 8.0)
    assert made.silent(5.0, 20.0) == (["b", "c"], 25.0)
    assert members().silent(5.0, 20.0) == ([], 25.0)
