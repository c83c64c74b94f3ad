"""Keys with limits are paced: buckets, parking, and that nobody else waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.core import (
    Arrived,
    Cancelled,
    Expire,
    Finished,
    KeyLimits,
    KeysUsed,
    NodeChanged,
    Options,
    OptionsChanged,
    Reject,
    Resumed,
    Returned,
    Revoked,
    Route,
    Ticked,
    Wait,
)
from forebay.core.buckets import MINUTE_S

from .rig import Rig

if TYPE_CHECKING:
    from forebay.core import Action, Event, NodeView

DAY_S = 86_400.0


def paced(limits: KeyLimits, **options: Any) -> Rig:
    """Return a rig whose key `k` has limits, with slots for all."""
    slots = options.pop("slots", 100)
    options = {"output_tokens_unmeasured": 0, "wait_s_max": 600.0, **options}
    rig = Rig(key_limits={"k": limits}, **options)
    rig.node(slots=slots)
    return rig


def requests(per_minute: int, **options: Any) -> Rig:
    return paced(KeyLimits(requests_per_minute=per_minute), **options)


def tokens(per_minute: int, **options: Any) -> Rig:
    return paced(KeyLimits(tokens_per_minute=per_minute), **options)


def names(routes: list[Route]) -> list[str]:
    return [route.id for route in routes]


def routed_by(rig: Rig, at_s: float) -> list[Route]:
    """Return what starts by itself until that time."""
    return [action for action in rig.tick(at_s) if isinstance(action, Route)]


# -- buckets


# -- pacing


def test_requests_over_the_rate_start_one_by_one_as_the_bucket_refills() -> None:
    rig = requests(6)
    for number in range(6):
        rig.start(f"a{number}", key="k")
    waits = [rig.wait(f"b{number}", key="k") for number in range(3)]
    assert [wait.reason for wait in waits] == ["rate"] * 3
    assert [wait.p50_s for wait in waits] == pytest.approx([10.0, 20.0, 30.0])
    assert rig.core.next_deadline_s() == pytest.approx(10.0)
    assert rig.tick(9.99) == []
    assert names(routed_by(rig, 10.01)) == ["b0"]
    assert names(routed_by(rig, 20.01)) == ["b1"]
    assert names(routed_by(rig, 30.01)) == ["b2"]
    assert rig.look().totals.rate_waits == 3


def test_a_request_that_the_bucket_did_not_suffice_for_keeps_its_place() -> None:
    rig = requests(2, fairness="fifo", slots=1)
    rig.start("z")
    rig.wait("a1", key="k")
    rig.wait("a2", key="k")
    rig.wait("a3", key="k")
    rig.wait("b1")
    rig.wait("b2")
    assert rig.finish("z") == ["a1"]
    assert rig.finish("a1") == ["a2"]
    assert rig.finish("a2") == ["b1"]  # a3 is over the rate, and passed over
    assert rig.describe("a3").reason == "rate"
    rig.tick(30.01)
    assert rig.describe("a3").reason == "busy"
    assert rig.describe("a3").position == 1
    assert rig.finish("b1") == ["a3"]


def test_what_is_larger_than_the_bucket_starts_when_that_is_full() -> None:
    rig = tokens(600)
    rig.start("a1", key="k", prompt_tokens=100)
    rig.wait("a2", key="k", prompt_tokens=5000)
    assert rig.tick(9.9) == []
    assert names(routed_by(rig, 10.01)) == ["a2"]
    rig.finish("a1", output_tokens=0)
    assert rig.wait("a3", key="k", prompt_tokens=1).p50_s == pytest.approx(60.1, rel=0.01)


def test_a_debt_is_at_most_one_bucket_and_no_more_is_given_back_than_was_taken() -> None:
    rig = tokens(600)
    rig.start("a1", key="k")
    rig.finish("a1", prompt_tokens=10**9, output_tokens=10**9)
    assert rig.wait("a2", key="k", prompt_tokens=5000).p50_s == pytest.approx(120.0)
    assert names(routed_by(rig, 120.01)) == ["a2"]
    rig.finish("a2", prompt_tokens=4000, output_tokens=0)
    assert rig.wait("a3", key="k", prompt_tokens=600).p50_s == pytest.approx(120.0)
    assert names(routed_by(rig, 240.03)) == ["a3"]
    rig.finish("a3", prompt_tokens=100, output_tokens=0)
    assert left(rig.start("a4", key="k")) == 500


def test_small_requests_do_not_take_from_a_large_one_that_waits_for_the_bucket() -> None:
    rig = tokens(600)
    rig.start("a1", key="k", prompt_tokens=300)
    rig.wait("big", key="k", prompt_tokens=600)
    assert rig.wait("a2", key="k", prompt_tokens=1).reason == "rate"
    rig.wait("low", key="k", prompt_tokens=1, priority="low")
    rig.start("high", key="k", prompt_tokens=1, priority="high")
    assert names(routed_by(rig, 30.2)) == ["big"]
    assert names(routed_by(rig, 30.4)) == ["a2", "low"]


def test_a_model_without_a_node_does_not_hold_back_the_others_of_its_key() -> None:
    rig = requests(2)
    rig.node("far", 1, "far")
    rig.give(NodeChanged("far", 1, ("far",), state="offline"))
    assert rig.wait("a1", "far", key="k").reason == "offline"
    assert rig.wait("a2", "far", key="k").reason == "offline"
    rig.start("a3", key="k")
    rig.start("a4", key="k")
    rig.wait("a5", key="k")
    assert names(routed_by(rig, 30.01)) == ["a5"]


def test_users_of_one_key_take_turns_at_its_rate() -> None:
    rig = requests(1, output_tokens_unmeasured=256)
    rig.start("z", key="k")
    for number in range(4):
        rig.wait(f"a{number}", key="k", user="a")
    for number in range(2):
        rig.wait(f"b{number}", key="k", user="b")
    started = []
    for minute in range(1, 7):
        started += names(routed_by(rig, 60.0 * minute + 0.1))
    assert started == ["a0", "b0", "a1", "b1", "a2", "a3"]


def test_the_charge_is_corrected_to_what_was_used() -> None:
    rig = tokens(600, output_tokens_unmeasured=500)
    rig.start("a1", key="k", prompt_tokens=100)
    rig.wait("a2", key="k", prompt_tokens=100)
    assert rig.finish("a1", prompt_tokens=80, output_tokens=20) == []
    rate = rig.describe("a2")
    assert rate.reason == "rate"  # 500 left, and it may take 600
    assert names(routed_by(rig, 10.01)) == ["a2"]


def test_the_estimate_stands_where_nothing_is_known_and_failures_cost_their_prompt() -> None:
    rig = tokens(600, output_tokens_unmeasured=100)
    assert left(rig.start("a1", key="k", prompt_tokens=100)) == 400
    rig.finish("a1")
    assert left(rig.start("a2", key="k", prompt_tokens=100)) == 200
    rig.finish("a2", ok=False)
    assert left(rig.start("a3", key="k", output_limit=10)) == 290
    rig.give(Cancelled("a3"))
    assert left(rig.start("a4", key="k", output_limit=1)) == 299


def test_a_retry_is_charged_once_and_one_that_ends_in_the_queue_uses_no_tokens() -> None:
    rig = paced(KeyLimits(requests_per_minute=3, tokens_per_minute=100))
    rig.node("m", 5)
    route = rig.start("a", key="k", prompt_tokens=40)
    assert (remaining(route), left(route)) == (2, 60)
    rig.come_back("a")
    assert rig.routed[-1].id == "a"
    assert (remaining(rig.routed[-1]), left(rig.routed[-1])) == (2, 60)
    rig.give(NodeChanged("m", 5, ("m",), state="offline"))
    rig.give(NodeChanged("n", 100, ("m",), state="offline"))
    rig.come_back("a")
    rig.give(Cancelled("a"))
    rig.node("n", 100)
    route = rig.start("b", key="k", prompt_tokens=1)
    assert (remaining(route), left(route)) == (1, 99)


def test_what_waits_for_its_rate_counts_in_every_bound() -> None:
    rig = requests(1, max_size=2, per_user_max=2)
    rig.start("z", key="k")
    rig.wait("a1", key="k", size_bytes=7)
    rig.wait("a2", key="k")
    assert rig.refuse("a3", key="k").code == "user_queue_full"
    assert rig.refuse("b1", key="k").code == "queue_full"
    look = rig.look()
    assert (look.waiting, look.waiting_bytes, look.lanes[0].waiting) == (2, 7, 2)
    assert look.lanes[0].p50_s == 0.0  # of any other key


def test_it_times_out_is_cancelled_and_revoked_like_any_other() -> None:
    rig = requests(1)
    rig.start("z", key="k")
    rig.wait("a1", key="k")
    rig.wait("a2", key="k")
    rig.wait("a3", key="k")
    rig.cancel("a1")
    (gone,) = rig.give(Revoked("a2", "unauthorized"))
    assert gone == Reject("a2", "unauthorized")
    rig.give(NodeChanged("n", 100, ("m",), state="offline"))
    (late,) = [one for one in rig.tick(600.0) if isinstance(one, Expire)]
    assert (late.id, late.waited_s) == ("a3", 600.0)
    assert rig.look().waiting == 0


def test_what_cannot_start_within_its_wait_limit_is_refused_at_once() -> None:
    rig = requests(6, wait_s_max=30.0)
    for number in range(6):
        rig.start(f"a{number}", key="k")
    for number in range(2):
        rig.wait(f"b{number}", key="k")
    refused = rig.refuse("c", key="k")
    assert refused.code == "rate_limited"
    assert refused.retry_after_s == pytest.approx(30.0)
    assert refused.rate is not None
    assert (refused.rate.limit_requests, refused.rate.remaining_requests) == (6, 0)
    assert rig.refuse("d", key="k", max_wait_s=0.0).code == "rate_limited"
    assert rig.wait("h", key="k", priority="high").p50_s == pytest.approx(10.0)  # before them all


def test_who_may_not_wait_is_refused_for_the_rate_where_that_is_why() -> None:
    rig = requests(1, enabled=False)
    rig.start("a", key="k")
    assert rig.refuse("b", key="k").code == "rate_limited"
    streams = requests(1, queue_streams=False)
    streams.start("a", key="k")
    assert streams.refuse("b", key="k", stream=True).code == "rate_limited"
    streams.wait("c", key="k")


def test_jobs_of_the_key_are_paced_and_never_refused() -> None:
    rig = requests(1, wait_s_max=1.0)
    rig.start("j1", key="k", job=True)
    assert rig.wait("j2", key="k", job=True).reason == "rate"
    assert rig.refuse("a", key="k").code == "rate_limited"
    assert names(routed_by(rig, 60.01)) == ["j2"]
    assert rig.look().waiting_jobs == 0


def test_a_slot_that_was_not_used_costs_its_key_nothing() -> None:
    rig = paced(KeyLimits(requests_per_minute=1, tokens_per_minute=50, tokens_per_day=50))
    rig.start("j1", key="k", job=True, prompt_tokens=50)
    assert rig.wait("j2", key="k", job=True, prompt_tokens=50).reason == "rate"
    actions = rig.give(Cancelled("j1", unused=True))
    assert [action.id for action in actions if isinstance(action, Route)] == ["j2"]
    rig.give(Cancelled("j2"))  # but one that was used is charged: its prompt
    assert rig.wait("j3", key="k", job=True).reason == "rate"


def test_promotion_takes_a_paced_request_to_the_next_class() -> None:
    rig = requests(1, aging_s=20.0)
    rig.start("z", key="k")
    rig.wait("low", key="k", priority="low")
    rig.tick(10.0)
    rig.wait("normal", key="k")
    assert [rig.tick(at_s) for at_s in (20.0, 30.0, 40.0)] == [[], [], []]
    assert names(routed_by(rig, 60.01)) == ["low"]  # promoted twice, and older
    assert rig.look().by_priority == {"high": 1, "normal": 0, "low": 0}


def test_a_node_for_several_free_slots_goes_to_the_paced_of_the_higher_class() -> None:
    rig = requests(2, slots=1)
    rig.give(NodeChanged("n", 0, ("m",), state="online"))
    rig.wait("z", key="k", priority="high")
    rig.wait("a", key="k", priority="high")
    rig.wait("b", priority="low")
    rig.give(NodeChanged("n", 2, ("m",)))
    assert names(rig.routed) == ["z", "a"]


# -- the day


def test_a_day_that_is_used_up_lasts_until_it_ends() -> None:
    rig = paced(KeyLimits(tokens_per_day=1000), wait_s_max=100.0)
    rig.give(KeysUsed({"k": 900, "other": 5}, day_ends_in_s=3600.0))
    route = rig.start("a", key="k", prompt_tokens=100)
    assert route.rate is not None
    assert (route.rate.limit_tokens, route.rate.remaining_tokens) == (1000, 0)
    assert route.rate.reset_tokens_s == 3600.0
    refused = rig.refuse("b", key="k", prompt_tokens=1)
    assert (refused.code, refused.retry_after_s) == ("rate_limited", 3600.0)
    rig.tick(3550.0)
    rig.wait("c", key="k", prompt_tokens=1)
    assert names(routed_by(rig, 3600.001)) == ["c"]
    rig.finish("c", output_tokens=899)
    rate = rig.start("d", key="k", output_limit=1).rate
    assert rate is not None
    assert rate.remaining_tokens == 99
    assert rate.reset_tokens_s == pytest.approx(DAY_S)


def test_usage_is_only_counted_upwards_and_a_new_day_begins_when_told() -> None:
    rig = paced(KeyLimits(tokens_per_day=1000))
    rig.give(KeysUsed({"k": 500}, day_ends_in_s=3600.0))
    rig.give(KeysUsed({"k": 200}, day_ends_in_s=3600.0))
    assert left(rig.start("a", key="k", prompt_tokens=1)) == 499
    rig.give(KeysUsed({"k": 3}, day_ends_in_s=DAY_S - 1.0))  # our clock was behind
    assert left(rig.start("b", key="k", prompt_tokens=1)) == 996


# -- limits that change, and other cores


def test_other_limits_hold_at_once() -> None:
    rig = requests(1)
    rig.start("a", key="k")
    rig.wait("b", key="k")
    rig.wait("c", key="k")
    limits = {"k": KeyLimits(requests_per_minute=2)}
    rig.give(OptionsChanged(Options(key_limits=limits, output_tokens_unmeasured=0)))
    assert names(rig.routed) == ["a", "b"]
    rig.give(OptionsChanged(Options()))
    assert names(rig.routed) == ["a", "b", "c"]


def test_a_core_that_takes_over_begins_with_empty_buckets() -> None:
    rig = requests(6)
    rig.now_s = 1000.0
    rig.give(KeysUsed(minute_is_used=True))
    rig.give(Resumed(Arrived("r", "m", key="k"), 5, 0.0, 1, "n"))
    rig.give(Resumed(Arrived("w", "m", key="k"), 6, 3.0))
    rig.give(Resumed(Arrived("again", "m", key="k"), 4, 3.0, 1))
    assert names(rig.routed) == ["again"]  # charged by the core before
    assert names(routed_by(rig, 1010.01)) == ["w"]


def test_limits_that_cannot_be_are_refused() -> None:
    options = Options(key_limits={"k": KeyLimits(requests_per_minute=-1)})
    assert options.problems() == ["key_limits.k must be finite numbers, at least 0"]


# -- anything, in any order

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "arrive", "finish", "return", "cancel", "tick", "node"]),
        st.integers(0, 50),
        st.floats(0, 8),
    ),
    min_size=10,
    max_size=80,
)
ANSWER = 3
"""What every answer is taken to be; none is measured."""


class Day:
    """A scheduler, and an account of its own of what the key has started."""

    def __init__(self, limits: KeyLimits, fairness: str) -> None:
        self.rig = Rig(
            key_limits={"k": limits}, wait_s_max=40.0, aging_s=7.0, fairness=fairness,
            output_tokens_unmeasured=ANSWER,
        )  # fmt: skip
        self.rig.node("n", 2, "m")
        self.rig.node("o", 1, "m", "x")
        self.limits = limits
        self.known: dict[str, Arrived] = {}
        self.running: set[str] = set()
        self.waiting: set[str] = set()
        self.charged: dict[str, int] = {}  # how many tokens
        self.charges: list[tuple[float, int, int]] = []  # when, requests, tokens; or given back

    def step(self, kind: str, pick: int, passes_s: float) -> None:
        self.rig.now_s += passes_s
        event: Event = Ticked()
        if kind == "arrive":
            event = self.arrival(pick)
        elif kind == "node":
            state: Any = "online" if pick % 2 else "offline"
            event = NodeChanged("n", pick % 4, ("m",), state=state)
        elif kind == "cancel" and self.waiting:
            event = Cancelled(sorted(self.waiting)[pick % len(self.waiting)])
            self.leave(event.id)
        elif kind in ("finish", "return") and self.running:
            name = sorted(self.running)[pick % len(self.running)]
            self.running.discard(name)
            event = Finished(name) if kind == "finish" else Returned(name)
            self.waiting |= {name} if kind == "return" else set()
        for action in self.rig.give(event):
            self.note(action)

    def arrival(self, pick: int) -> Arrived:
        arrival = Arrived(
            f"r{len(self.known)}", ("m", "x")[pick % 2], user="ab"[pick // 2 % 2],
            key=("k", "")[pick // 4 % 2], priority=("high", "normal", "low")[pick % 3],
            prompt_tokens=pick, output_limit=pick % 5, job=pick % 7 == 0,
        )  # fmt: skip
        self.known[arrival.id] = arrival
        return arrival

    def note(self, action: Action) -> None:
        if isinstance(action, Wait):
            self.waiting.add(action.id)
        elif isinstance(action, Reject | Expire):
            self.leave(action.id)
        elif isinstance(action, Route):
            self.waiting.discard(action.id)
            self.running.add(action.id)
            arrival = self.known[action.id]
            if arrival.key and action.id not in self.charged:
                tokens = arrival.prompt_tokens + min(arrival.output_limit or ANSWER, ANSWER)
                self.charged[action.id] = tokens
                self.charges.append((self.rig.now_s, 1, tokens))

    def leave(self, name: str) -> None:
        self.waiting.discard(name)
        if name in self.charged:  # it came back, and never ran again
            self.charges.append((self.rig.now_s, 0, -self.charged[name]))

    def check(self) -> None:
        look = self.rig.look()
        assert look.waiting + look.waiting_jobs == len(self.waiting)
        assert look.running + look.running_jobs == len(self.running)
        self.check_buckets()
        for name in self.waiting:
            seen, arrival = self.rig.describe(name), self.known[name]
            assert seen.state == "waiting"
            if not arrival.key:
                assert seen.reason != "rate"
                free = [node for node in look.nodes if could_take(node, arrival.model)]
                held = seen.reason == "better_node"
                assert not free or seen.attempt or held, (
                    f"{name} waits, and there is room in {free}"
                )

    def check_buckets(self) -> None:
        """In no time did it start more than a bucket, and what refills it, and the debt of one."""
        charges = self.charges
        per_minute, limit = self.limits.requests_per_minute, self.limits.tokens_per_minute
        for place, (since_s, _, _) in enumerate(charges):
            requests, tokens = zip(*(one[1:] for one in charges[place:]), strict=True)
            tokens = [max(-2 * limit, min(one, 2 * limit)) for one in tokens]  # the largest debt
            minutes = 1 + (self.rig.now_s - since_s) / MINUTE_S
            assert not per_minute or sum(requests) <= per_minute * minutes + 1e-6
            largest = max(0, max(tokens) - limit)
            assert not limit or sum(tokens) <= limit * minutes + largest + 1e-6
        per_day, used = self.limits.tokens_per_day, [one[2] for one in charges]
        assert not per_day or sum(used) <= max(per_day, *used, 0)


def could_take(node: NodeView, model: str) -> bool:
    return node.state == "online" and model in node.models and node.in_flight < node.slots


@given(
    steps=STEPS,
    limits=st.builds(KeyLimits, st.integers(0, 5), st.integers(0, 120), st.integers(0, 400)),
    fairness=st.sampled_from(["round_robin", "fifo", "tokens"]),
)
@settings(max_examples=150, deadline=None)
def test_no_key_exceeds_its_rate_and_nobody_else_waits_for_it(
    steps: list[tuple[str, int, float]], limits: KeyLimits, fairness: str
) -> None:
    day = Day(limits, fairness)
    for step in steps:
        day.step(*step)
        day.check()


def left(route: Route) -> int:
    assert route.rate is not None
    return route.rate.remaining_tokens


def remaining(route: Route) -> int:
    assert route.rate is not None
    return route.rate.remaining_requests


def test_who_moves_up_when_its_rate_lets_it_go_starts_at_once() -> None:
    limits = {"k": KeyLimits(requests_per_minute=1)}
    rig = Rig(aging_s=60.0, wait_s_max=600.0, key_limits=limits)
    rig.node(slots=2)
    rig.start("a", key="k")
    assert rig.wait("b", key="k", priority="low").reason == "rate"
    assert Rig.started(rig.tick(60.0)) == ["b"]
