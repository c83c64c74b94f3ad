"""What every adapter of a port must do, written once. Subclass it and provide the fixture.

Events may be acted on at once, later, or elsewhere, so a harness has `settle()`: let everything
that is on its way arrive. Nothing here looks at time other than through the harness.
"""

from collections.abc import Callable
from typing import Protocol

from forebay.core import (
    Action,
    Arrived,
    Audit,
    Audited,
    Cancelled,
    Event,
    Expire,
    Finished,
    Lease,
    NodeChanged,
    Observed,
    Reject,
    Returned,
    Revoked,
    Route,
    ShutDown,
    Snapshot,
    Wait,
)  # fmt: skip


class CoordinatorHarness(Protocol):
    """One coordinator with its callback recorded and its clock under control."""

    actions: list[Action]
    on_action: Callable[[Action], None]
    """Called for each action after it was recorded; tests replace it."""

    def post(self, event: Event) -> None: ...

    def settle(self) -> None: ...

    def advance(self, seconds: float) -> None: ...

    def stop(self) -> None: ...


GPU = NodeChanged("gpu1", slots=1, models=("llama",))


def routed(harness: CoordinatorHarness) -> list[str]:
    return [action.id for action in harness.actions if isinstance(action, Route)]


class CoordinatorContract:
    """What every coordinator must do."""

    def post_all(self, harness: CoordinatorHarness, *events: Event) -> None:
        for event in events:
            harness.post(event)
        harness.settle()

    def test_every_arrival_gets_exactly_one_decision(self, harness: CoordinatorHarness) -> None:
        self.post_all(harness, GPU, Arrived("a", "llama"), Arrived("b", "llama"))
        self.post_all(harness, Arrived("c", "unknown"))
        assert [type(action) for action in harness.actions] == [Route, Wait, Reject]

    def test_a_freed_slot_wakes_exactly_one_waiter(self, harness: CoordinatorHarness) -> None:
        self.post_all(harness, GPU, *(Arrived(name, "llama") for name in "abc"))
        assert routed(harness) == ["a"]
        self.post_all(harness, Finished("a"))
        assert routed(harness) == ["a", "b"]

    def test_order_is_priority_then_users_in_turn(self, harness: CoordinatorHarness) -> None:
        self.post_all(harness, GPU)
        self.post_all(harness, *(Arrived(f"A{n}", "llama", user="A") for n in range(1, 6)))
        self.post_all(harness, *(Arrived(f"B{n}", "llama", user="B") for n in range(1, 3)))
        self.post_all(harness, Arrived("H", "llama", user="A", priority="high"))
        while len(routed(harness)) < 8:
            self.post_all(harness, Finished(routed(harness)[-1]))
        assert routed(harness) == ["A1", "H", "B1", "A2", "B2", "A3", "A4", "A5"]

    def test_the_bound_is_exact(self, harness: CoordinatorHarness) -> None:
        self.post_all(harness, GPU, *(Arrived(f"r{n}", "llama") for n in range(110)))
        waits = [action for action in harness.actions if isinstance(action, Wait)]
        rejects = [action for action in harness.actions if isinstance(action, Reject)]
        assert len(waits) == 100
        assert [reject.code for reject in rejects] == ["queue_full"] * 9

    def test_who_will_not_wait_gets_whatever_is_idle(self, harness: CoordinatorHarness) -> None:
        self.post_all(harness, GPU)
        for number in range(6):  # wherever the slot was used last
            self.post_all(harness, Arrived(f"r{number}", "llama", max_wait_s=0.0))
            assert routed(harness)[-1:] == [f"r{number}"]
            self.post_all(harness, Arrived(f"late{number}", "llama", max_wait_s=0.0))
            assert isinstance(harness.actions[-1], Reject)
            self.post_all(harness, Finished(f"r{number}"))

    def test_a_waiter_expires_without_anyone_posting(self, harness: CoordinatorHarness) -> None:
        self.post_all(harness, GPU, Arrived("a", "llama"), Arrived("b", "llama"))
        harness.advance(60.0)
        harness.settle()
        assert [action.id for action in harness.actions if isinstance(action, Expire)] == ["b"]

    def test_a_cancelled_waiter_never_runs(self, harness: CoordinatorHarness) -> None:
        self.post_all(harness, GPU, *(Arrived(name, "llama") for name in "abc"))
        self.post_all(harness, Cancelled("b"), Finished("a"))
        assert routed(harness) == ["a", "c"]

    def test_a_grant_to_a_vanished_waiter_passes_to_the_next(
        self, harness: CoordinatorHarness
    ) -> None:
        def vanish(action: Action) -> None:
            if isinstance(action, Route) and action.id == "b":
                harness.post(Cancelled("b"))

        harness.on_action = vanish
        self.post_all(harness, GPU, *(Arrived(name, "llama") for name in "abc"))
        self.post_all(harness, Finished("a"))
        assert routed(harness) == ["a", "b", "c"]

    def test_a_return_keeps_its_place_and_avoids_the_node(
        self, harness: CoordinatorHarness
    ) -> None:
        second = NodeChanged("gpu2", slots=1, models=("llama",))
        self.post_all(harness, GPU, second, *(Arrived(name, "llama") for name in "abcd"))
        before = [a for a in harness.actions if isinstance(a, Route) and a.id == "a"]
        self.post_all(harness, Returned("a"), Finished("b"))
        again = [a for a in harness.actions if isinstance(a, Route) and a.id == "a"]
        assert len(again) == 2
        assert again[1].node != before[0].node
        assert routed(harness) == ["a", "b", "c", "a"]

    def test_shutdown_answers_every_waiter(self, harness: CoordinatorHarness) -> None:
        self.post_all(harness, GPU, *(Arrived(name, "llama") for name in "abc"), ShutDown())
        rejects = [action for action in harness.actions if isinstance(action, Reject)]
        assert sorted(reject.id for reject in rejects) == ["b", "c"]
        assert {reject.code for reject in rejects} == {"shutting_down"}

    def test_a_waiter_can_be_revoked_by_others(self, harness: CoordinatorHarness) -> None:
        self.post_all(harness, GPU, Arrived("a", "llama"), Arrived("b", "llama"))
        self.post_all(harness, Revoked("b", "unauthorized"))
        assert harness.actions[-1] == Reject("b", "unauthorized")

    def test_all_slots_come_back(self, harness: CoordinatorHarness) -> None:
        self.post_all(harness, GPU, *(Arrived(name, "llama") for name in "abc"))
        self.post_all(harness, Finished("a"), Cancelled("b"), Finished("c", ok=False), Observed())
        picture = harness.actions[-1]
        assert isinstance(picture, Snapshot)
        assert (picture.waiting, picture.running, picture.nodes[0].in_flight) == (0, 0, 0)

    def test_an_audit_lists_the_leases_that_are_held(self, harness: CoordinatorHarness) -> None:
        self.post_all(harness, GPU, *(Arrived(name, "llama") for name in "abc"), Audited())
        told = [action for action in harness.actions if isinstance(action, Audit)]
        assert [lease for one in told for lease in one.leases] == [Lease("a", GPU.name)]
        assert sum(one.tickets for one in told) == 3
        self.post_all(harness, Cancelled("c"), Finished("a"), Finished("b"), Audited())
        assert harness.actions[-len(told) :] == [Audit()] * len(told)

    def test_nothing_is_performed_after_stop(self, harness: CoordinatorHarness) -> None:
        self.post_all(harness, GPU, Arrived("a", "llama"), Arrived("b", "llama"))
        before = list(harness.actions)
        harness.stop()
        harness.stop()
        self.post_all(harness, Finished("a"))
        harness.advance(100.0)
        harness.settle()
        assert harness.actions == before
