"""A model that keeps failing on a node (FAULTS 35): it rests there, is tried, the others go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from forebay.core import (
    Arrived,
    Cancelled,
    Expire,
    Finished,
    Reject,
    Resumed,
    Route,
)

from .rig import Rig

if TYPE_CHECKING:
    from forebay.core import Action


def test_fault_35_a_model_that_rests_is_waited_for_while_the_others_go_on() -> None:
    rig = Rig()
    rig.node("n", 1, "big", "small")
    rig.node("n", 1, "big", "small", failing=("big",))
    assert rig.wait("a", "big").reason == "busy"
    assert rig.start("b", "small").node == "n"
    rig.finish("b")
    rig.node("n", 1, "big", "small", on_trial=("big",))
    assert [route.id for route in rig.routed] == ["b", "a"]


def test_who_may_not_wait_is_not_told_that_the_nodes_are_offline() -> None:
    rig = Rig(enabled=False)
    rig.node("n", 1, "m", failing=("m",))
    assert rig.refuse("a").code == "queue_disabled"


def test_the_wait_for_a_model_that_rests_ends_as_any_wait_for_a_slot() -> None:
    rig = Rig(wait_s_max=3.0)
    rig.node("n", 1, "m", failing=("m",))
    rig.wait("a")
    assert rig.only(Expire, rig.tick(3.0)).code == "queue_timeout"


def test_a_resting_model_of_an_offline_node_is_not_waited_for() -> None:
    rig = Rig()
    rig.node("n", 1, "m", state="offline", failing=("m",), away_s=60.0)
    assert rig.refuse("a").code == "no_node"


def test_on_trial_one_request_at_a_time_runs_and_other_models_have_the_other_slots() -> None:
    rig = Rig()
    rig.node("n", 4, "m", "other", on_trial=("m",))
    rig.start("a")
    for name in "bcd":
        rig.wait(name)
    rig.start("e", "other")
    assert rig.finish("a", ok=False) == ["b"], "it says nothing: the next one is the probe"
    rig.cancel("b")
    assert [route.id for route in rig.routed] == ["a", "e", "b", "c"]
    rig.node("n", 4, "m", "other")
    assert rig.routed[-1].id == "d", "it has succeeded: now all at once"


def test_a_trial_holds_for_all_families_of_a_model() -> None:
    rig = Rig()
    rig.node("n", 4, "m", families=("openai", "anthropic"), on_trial=("m",))
    rig.start("a")
    rig.wait("b", family="anthropic")
    assert rig.finish("a") == ["b"]


def test_a_probe_that_fails_puts_the_model_to_rest_before_it_leaves() -> None:
    rig = Rig()
    rig.node("n", 4, "m", on_trial=("m",))
    rig.start("a")
    rig.wait("b")
    rig.node("n", 4, "m", failing=("m",))
    rig.come_back("a", exclude=False)
    assert [route.id for route in rig.routed] == ["a"]
    rig.node("n", 4, "m", on_trial=("m",))
    assert rig.routed[-1].id == "a", "at its old place"
    assert rig.finish("a") == ["b"]


def test_a_ticket_taken_over_counts_as_the_one_on_trial() -> None:
    rig = Rig()
    rig.node("n", 4, "m", on_trial=("m",))
    rig.give(Resumed(Arrived("a", "m"), node="n", attempt=1))
    rig.wait("b")
    assert rig.finish("a") == ["b"]


def test_a_node_that_is_removed_amid_a_trial_leaves_nothing_behind() -> None:
    rig = Rig()
    rig.node("n", 4, "m", on_trial=("m",))
    rig.start("a")
    rig.give_removal("n")
    rig.finish("a")
    assert rig.refuse("b").code == "model_not_found"


def test_a_failing_model_is_forgotten_with_its_node() -> None:
    rig = Rig()
    rig.node("n", 1, "big", "small", failing=("big",))
    rig.node("n", 1, "small")
    (refusal,) = rig.give_arrival("a", "big")
    assert isinstance(refusal, Reject)
    assert refusal.code == "model_not_found"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("arrive", "arrive", "finish", "come back", "cancel", "node")),
        st.integers(0, 7),
        st.sampled_from(("fine", "failing", "on_trial", "offline")),
        st.booleans(),
    ),
    max_size=80,
)


class Watched:
    """A scheduler with two nodes, and what anyone may conclude from what it was told and said."""

    def __init__(self) -> None:
        self.rig = Rig(wait_s_max=1e9, max_size=1000)
        self.said = {"n0": "fine", "n1": "fine"}  # of the model m
        self.models: dict[str, str] = {}
        self.running: dict[str, str] = {}
        self.kept_off: dict[str, set[str]] = {}
        for name in self.said:
            self.tell(name)

    def tell(self, name: str) -> None:
        said = self.said[name]
        if said != "offline":  # a good probe: back to who has no other node
            up = [node for node, how in self.said.items() if how != "offline"]
            for ticket, off in self.kept_off.items():
                if ticket not in self.running and not set(up) - off:
                    off.discard(name)
        state = "offline" if said == "offline" else "online"
        more = {said: ("m",)} if said in ("failing", "on_trial") else {}
        self.follow(self.rig.node(name, 3, "m", "other", state=state, **more))

    def check_start(self, route: Route) -> None:
        said = self.said[route.node]
        assert said != "offline"
        if self.models[route.id] == "m":
            assert said != "failing"
            assert said != "on_trial" or not self.of_m_on(route.node)

    def of_m_on(self, node: str) -> int:
        running = self.running.items()
        return sum(self.models[ticket] == "m" and on == node for ticket, on in running)

    def check_nothing_waits_in_vain(self) -> None:
        taken = list(self.running.values())
        for ticket in self.models.keys() - self.running.keys():
            for node, said in self.said.items():
                free = said != "offline" and taken.count(node) < 3
                if self.models[ticket] == "m":
                    free &= said != "failing" and (said == "fine" or not self.of_m_on(node))
                assert not free or node in self.kept_off[ticket], f"{ticket} could run on {node}"

    def step(self, what: str, number: int, said: str, flag: bool) -> None:
        running = sorted(self.running)
        if what == "arrive":
            name = f"t{len(self.models)}-{self.rig.now_s}"
            self.models[name] = "m" if number else "other"
            self.kept_off[name] = set()
            (decision, *_) = actions = self.rig.give_arrival(name, self.models[name])
            self.follow(actions)
            if isinstance(decision, Reject):
                assert set(self.said.values()) == {"offline"}
                del self.models[name]
        elif what == "node":
            self.said[f"n{number % 2}"] = said
            self.tell(f"n{number % 2}")
        elif running:
            self.end(running[number % len(running)], what, exclude=flag)

    def follow(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Route):
                self.check_start(action)
                self.running[action.id] = action.node

    def end(self, ticket: str, what: str, *, exclude: bool) -> None:
        node = self.running.pop(ticket)
        if what == "come back":
            if exclude:
                self.kept_off[ticket].add(node)
            self.follow(self.rig.come_back(ticket, exclude=exclude))
            return
        del self.models[ticket]
        self.follow(self.rig.give(Finished(ticket) if what == "finish" else Cancelled(ticket)))


@given(STEPS)
def test_whatever_happens_rests_and_trials_hold_and_nothing_waits_in_vain(
    steps: list[tuple[str, int, str, bool]],
) -> None:
    watched = Watched()
    for step in steps:
        watched.rig.now_s += 1.0
        watched.step(*step)
        watched.check_nothing_waits_in_vain()
