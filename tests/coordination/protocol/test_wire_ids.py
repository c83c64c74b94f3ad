"""Ids between replicas: each is used once, whatever ids callers use again."""

from __future__ import annotations

from forebay.coordination.protocol.wire_ids import WireIds
from forebay.core import (
    Arrived,
    Audit,
    Cancelled,
    Event,
    Expire,
    Finished,
    Inspected,
    Lease,
    Observed,
    Reject,
    Returned,
    Route,
)

from ..crew import TWO_SLOTS, Crew, arrivals, until


def arrived(ids: WireIds, name: str = "x") -> str:
    sent = ids.to_wire(Arrived(name, "llama"))
    assert isinstance(sent, Arrived)
    assert sent.request_id == name
    return sent.id


def test_an_id_that_is_used_again_is_another_one_on_the_wire() -> None:
    ids = WireIds("a-1")
    first = arrived(ids)
    assert ids.from_wire(Route(first, "gpu")) == Route("x", "gpu")
    assert ids.to_wire(Finished("x")) == Finished(first)
    second = arrived(ids)
    assert second != first
    assert ids.from_wire(Route(first, "gpu")) is None  # of the one that has ended
    assert ids.from_wire(Route(second, "gpu")) == Route("x", "gpu")
    assert WireIds("a-2").to_wire(Arrived("x", "llama")) != Arrived(first, "llama", request_id="x")


def test_what_is_said_about_a_ticket_that_has_ended_goes_nowhere() -> None:
    ids = WireIds("a-1")
    endings: list[Event] = [Finished("x"), Cancelled("x")]
    for ending in endings:
        arrived(ids)
        assert ids.to_wire(ending) is not None
        late: list[Event] = [Finished("x"), Cancelled("x"), Returned("x"), Inspected("x")]
        assert [ids.to_wire(event) for event in late] == [None] * 4
    assert ids.from_wire(Reject(arrived(ids), "queue_full")) == Reject("x", "queue_full")
    assert ids.to_wire(Cancelled("x")) is None
    told = ids.from_wire(Expire(arrived(ids), "queue_timeout", 1.0))
    assert told == Expire("x", "queue_timeout", 1.0)
    assert ids.to_wire(Cancelled("x")) is None
    assert len(ids) == 0


def test_what_is_about_no_ticket_passes_and_an_audit_names_the_callers_ids() -> None:
    ids = WireIds("a-1")
    wire_id = arrived(ids)
    assert ids.to_wire(Observed()) == Observed()
    audit = Audit((Lease(wire_id, "gpu"),), 1)
    assert ids.from_wire(audit) == Audit((Lease("x", "gpu"),), 1)


async def test_two_replicas_with_the_same_id_are_told_apart(valkey_url: str) -> None:
    async with Crew(valkey_url, 2) as crew:
        crew.everyone(TWO_SLOTS)
        await crew.settled()
        leader, other = crew.leader, crew.follower
        other.post(*arrivals("x", "same"))
        await until(lambda: other.routed == ["x", "same"])
        leader.post(*arrivals("same", "last"))
        await until(lambda: len(leader.actions) == 2)
        other.post(Finished("same"))
        await until(lambda: leader.routed == ["same"])
        other.post(*arrivals("same"))  # once more: it waits behind them
        await until(lambda: len(other.actions) == 3)
        leader.post(Cancelled("same"))
        await until(lambda: leader.routed == ["same", "last"])
        assert other.routed == ["x", "same"]
        assert await leader.replica.fleet.owner_of("same") == other.replica.about.name
        leader.post(Finished("last"))
        await until(lambda: other.routed == ["x", "same", "same"])
