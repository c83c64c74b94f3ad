"""The leader's register of tickets."""

from __future__ import annotations

from forebay.coordination.leader.tickets import (
    FleetTicket,
    FleetTickets,
    Member,
    goes_by_node,
)
from forebay.coordination.protocol.messages import About
from forebay.core import Arrived, NodeChanged

GPU = NodeChanged("gpu", slots=1, models=("llama",))
OTHER = NodeChanged("other", slots=1, models=("qwen",), families=("ollama",))


def member(name: str) -> Member:
    return Member(About(name), 1, 0.0)


def added(tickets: FleetTickets, owner: Member, arrival: Arrived) -> FleetTicket:
    made = tickets.add(owner, arrival)
    assert made is not None
    return made


def test_what_a_replica_says_twice_is_heard_once() -> None:
    tickets, a = FleetTickets(), member("a-1")
    added(tickets, a, Arrived("x", "llama"))
    assert tickets.add(a, Arrived("x", "llama")) is None


def test_a_node_is_wanted_while_someone_waits_who_could_use_it() -> None:
    tickets, a = FleetTickets(), member("a-1")
    ticket = added(tickets, a, Arrived("x", "other", fallbacks=("llama",)))
    assert not tickets.is_wanted(GPU)
    tickets.wait(ticket, waits=True)
    tickets.wait(ticket, waits=True)
    assert tickets.is_wanted(GPU)
    assert not tickets.is_wanted(OTHER)
    tickets.run(ticket, "gpu")
    assert not tickets.is_wanted(GPU)
    assert tickets.busy("gpu") == 1
    tickets.remove(ticket)
    assert tickets.busy("gpu") == 0


def test_a_session_goes_by_node_where_several_could_serve_it_and_a_cached_prompt_always() -> None:
    twin = NodeChanged("twin", slots=1, models=("llama",))
    plain, session = Arrived("x", "llama"), Arrived("y", "llama", affinity="s")
    cached = Arrived("z", "llama", prefix=(1,), prefix_tokens=(10,))
    assert [goes_by_node(one, (GPU, OTHER)) for one in (plain, session, cached)] == [0, 0, 1]
    assert [goes_by_node(one, (GPU, twin)) for one in (plain, session, cached)] == [0, 1, 1]
