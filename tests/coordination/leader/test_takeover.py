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


def test_it_is_over_when_all_have_been_heard_to_the_end() -> None:
    takeover = Takeover({"a", "b"}, until_s=10.0)
    takeover.add("a", Announced(About("a")))
    takeover.add("b", GPU)
    assert not takeover.is_over(9.9)
    takeover.add("b", Announced(About("b")))
    assert takeover.is_over(0.0)


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


def test_one_that_has_gone_is_not_waited_for_and_was_not_there() -> None:
    takeover = Takeover({"a", "b"}, until_s=10.0)
    takeover.add("a", Announced(About("a")))
    takeover.add("b", runs("gone"))
    takeover.leave("b")
    assert takeover.is_over(0.0)
    assert takeover.until_s == 0.0
    assert [type(item) for _, item in takeover.in_order()] == [Announced]


def test_what_waits_and_runs_goes_on_doing_so_while_the_others_are_heard() -> None:
    takeover = Takeover({"a", "b"}, 10.0)
    takeover.begin("a", 2.0)
    for item in (runs("r"), waits("w", 1, waited_s=5.0)):
        takeover.add("a", item)
    taken = [item for _, item in takeover.in_order(9.0)]
    assert [(item.ran_s, item.waited_s) for item in taken if isinstance(item, Resumed)] == [
        (7.0, 0.0),
        (0.0, 12.0),
    ]


def test_who_announces_anew_is_heard_anew() -> None:
    takeover = Takeover({"a"}, 10.0)
    takeover.add("a", waits("old", 1))
    takeover.begin("a")
    takeover.add("a", waits("new", 2))
    assert [item for _, item in takeover.in_order()] == [waits("new", 2)]
