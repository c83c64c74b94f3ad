"""A replica without its fleet."""

from __future__ import annotations

from msgspec.structs import replace

from coordination.pair import new_follower
from forebay.coordination.follower.local_ticket import LocalTicket
from forebay.coordination.follower.standalone import Standalone, own_picture, share_of
from forebay.core import Arrived, Finished, NodeChanged, NodeRemoved, Options, Reject, Route, Wait

MEMBERS = ("a", "b")
GPU = NodeChanged("gpu", slots=4, models=("llama",))


def ticket(name: str, *, seq: int = 0, runs: bool = False, priority: str = "normal") -> LocalTicket:
    ticket = LocalTicket(Arrived(name, "llama", priority=priority), 0.0)
    if runs:
        ticket.run(Route(name, "gpu", seq=seq), 0.0)
    elif seq:
        ticket.wait(Wait(name, "busy", 1, seq=seq))
    return ticket


def started(actions: list[object]) -> list[str]:
    return [action.id for action in actions if isinstance(action, Route)]


def alone(*tickets: LocalTicket, cut_off: bool = False) -> tuple[Standalone, list[object]]:
    made = Standalone("a", MEMBERS, Options())
    actions: list[object] = [*made.begin({"gpu": GPU}, tickets, 1.0)]
    if cut_off:
        actions += made.set_cut_off(off=True, now_s=1.0)
    return made, actions


def test_newcomers_start_on_the_share_or_are_refused() -> None:
    made, _ = alone()
    answers = [made.handle(Arrived(name, "llama"), 2.0)[0] for name in "xyz"]
    assert [type(answer) for answer in answers] == [Route, Route, Reject]
    assert isinstance(answers[2], Reject)
    assert answers[2].code == "coordination_lost"
    assert "cannot coordinate" in answers[2].reasons[0]


def test_what_runs_counts_first_whatever_the_order_and_beyond_the_share_nothing_starts() -> None:
    waiting = [ticket(name, seq=seq) for name, seq in (("w2", 9), ("w1", 8))]
    running = [ticket(f"r{n}", seq=20 + n, runs=True) for n in range(3)]
    made, actions = alone(*waiting, *running)
    assert started(actions) == []
    assert made.handle(Finished("r0"), 2.0) == []
    assert started([*made.handle(Finished("r1"), 2.0)]) == ["w1"]
    assert started([*made.handle(Finished("r2"), 2.0)]) == ["w2"]


def test_what_waited_starts_by_the_rules_and_not_by_its_age() -> None:
    waiting = [
        ticket(name, seq=seq, priority=name) for seq, name in enumerate(("low", "normal"), 1)
    ]
    made, actions = alone(*waiting, ticket("high", seq=3, priority="high"), ticket("asked"))
    assert started(actions) == ["high", "normal"]
    assert started([*made.handle(Finished("high"), 2.0)]) == ["low"]


def test_what_was_not_decided_is_decided_now() -> None:
    _, actions = alone(ticket("asked1"), ticket("waiting", seq=3), ticket("asked2"))
    assert started(actions) == ["waiting", "asked1"]
    assert [action.id for action in actions if isinstance(action, Reject)] == ["asked2"]


def test_cut_off_nothing_starts_until_the_others_are_alone_as_well() -> None:
    made, _ = alone(
        ticket("w", seq=1), ticket("r1", runs=True), ticket("r2", runs=True), cut_off=True
    )
    assert made.handle(Finished("r1"), 2.0) == []
    (refused,) = made.handle(Arrived("x", "llama"), 2.0)
    assert isinstance(refused, Reject)
    assert "cannot reach the shared store" in refused.reasons[0]
    assert made.set_cut_off(off=True, now_s=2.0) == []
    assert started([*made.set_cut_off(off=False, now_s=3.0)]) == ["w"]


def test_whether_it_has_a_share_at_all_follows_the_nodes() -> None:
    one_slot = replace(GPU, slots=1)
    me, other = sorted(MEMBERS, key=lambda name: share_of(name, MEMBERS, "gpu", 1))
    follower = new_follower(me, Options())
    follower.members = MEMBERS
    follower.post(one_slot, 0.0)
    follower.join(1, other, 0.0)
    follower.go_standalone(1.0)
    modes: list[str] = [follower.mode]
    for event in (GPU, one_slot, replace(GPU, name="gpu2"), NodeRemoved("gpu2")):
        follower.post(event, 2.0)
        modes.append(follower.mode)
    assert modes == ["cut_off", "alone", "cut_off", "alone", "cut_off"]


def test_its_own_picture_has_its_own_tickets() -> None:
    tickets = [ticket("w", seq=1), ticket("asked"), ticket("r", runs=True)]
    seen = own_picture(Options(), {"gpu": NodeChanged("gpu", 1, ("llama",))}, tickets, 2.0)
    assert (seen.waiting, seen.running) == (2, 1)
