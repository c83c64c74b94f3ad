"""What a new leader hears before it decides."""

from __future__ import annotations

from forebay.coordination.leader.takeover import Takeover
from forebay.coordination.protocol.messages import About, Announced, Heartbeat, Up
from forebay.core import Arrived, Cancelled, NodeChanged, Resumed

GPU = NodeChanged("gpu", slots=1, models=("llama",))


def waits(name: str, seq: int, waited_s: float = 1.0) -> Resumed:
    return Resumed(Arrived(name, "llama"), seq=seq, waited_s=waited_s)


def runs(name: str) -> Resumed:
    return Resumed(Arrived(name, "llama"), seq=99, node="gpu")


def test_it_waits_for_those_who_say_nothing_only_so_long() -> None:
    takeover = Takeover({"a", "b"}, until_s=10.0)
    takeover.add("a", Announced(About("a")))
    assert not takeover.is_over(9.9)
    assert takeover.is_over(10.0)


def test_nodes_come_first_then_what_runs_then_what_waited_in_its_old_order_then_news() -> None:
    takeover = Takeover((), 0.0)
    said: list[tuple[str, Up]] = [
        ("a", Arrived("new", "llama")),
        ("a", waits("third", 7)),
        ("a", Cancelled("first")),
        ("b", waits("last", 0, waited_s=2.0)),
        ("b", waits("first", 3)),
        ("b", waits("before last", 0, waited_s=4.0)),
        ("b", runs("running")),
        ("b", waits("second", 5)),
        ("b", GPU),
        ("b", Heartbeat(1.0)),
    ]
    for member, item in said:
        takeover.add(member, item)
    names = [
        item.arrival.id if isinstance(item, Resumed) else type(item).__name__
        for _, item in takeover.in_order()
    ]
    assert names == [
        "NodeChanged", "running", "first", "second", "third", "before last", "last",
        "Arrived", "Cancelled", "Heartbeat",
    ]  # fmt: skip
