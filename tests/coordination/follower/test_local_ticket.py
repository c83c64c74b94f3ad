"""What a replica remembers of its tickets, and says of them."""

from __future__ import annotations

from forebay.coordination.follower.local_ticket import LocalTicket
from forebay.core import Arrived, Resumed, Route, Wait

ARRIVAL = Arrived("x", "llama", fallbacks=("qwen",))


def test_what_was_not_decided_arrives_anew() -> None:
    assert LocalTicket(ARRIVAL, 1.0).announcement(5.0) == ARRIVAL


def test_what_waits_keeps_its_place_and_its_age() -> None:
    ticket = LocalTicket(ARRIVAL, 1.0)
    ticket.wait(Wait("x", "busy", 3, seq=7))
    assert ticket.announcement(5.0) == Resumed(ARRIVAL, seq=7, waited_s=4.0)


def test_what_runs_says_where_since_when_and_with_which_model() -> None:
    ticket = LocalTicket(ARRIVAL, 1.0)
    ticket.wait(Wait("x", "busy", 3, seq=7))
    ticket.run(Route("x", "gpu", waited_s=2.0, attempt=1, model="qwen", seq=7), 3.0)
    told = ticket.announcement(10.0)
    assert isinstance(told, Resumed)
    assert told.arrival.model == "qwen"
    assert (told.seq, told.waited_s, told.attempt, told.node, told.ran_s) == (7, 2.0, 1, "gpu", 7.0)


def test_what_comes_back_keeps_its_place_off_the_nodes_that_failed_it() -> None:
    ticket = LocalTicket(ARRIVAL, 0.0)
    for node, exclude in (("gpu1", True), ("gpu2", False), ("gpu1", True)):
        ticket.run(Route("x", node, waited_s=1.0, seq=7), 1.0)
        ticket.requeue(2.0, exclude=exclude)
    assert ticket.announcement(3.0) == Resumed(
        ARRIVAL, seq=7, waited_s=2.0, attempt=1, excluded=("gpu1",)
    )
