"""Two workers before nodes of unequal speed: the path that asks nobody keeps to the rule, too."""

from __future__ import annotations

from forebay.core import (
    Arrived,
    Describe,
    Finished,
    Inspected,
    NodeChanged,
    Observed,
    Route,
    Snapshot,
)

from ..pair import LocalFleet, LocalReplica

SERVICE_S = {"fast": 1.0, "slow": 5.0}
NODES = tuple(NodeChanged(name, slots=3, models=("m",)) for name in SERVICE_S)


def joined(fleet: LocalFleet) -> list[LocalReplica]:
    """Return two workers; their leader has no requests of its own, and borrows nothing."""
    del fleet.replicas[fleet.name]
    fleet.leader.forget(fleet.name, fleet.now_s)
    return [fleet.join("one-1", *NODES), fleet.join("two-1", *NODES)]


def advance(fleet: LocalFleet, seconds: float) -> None:
    """Let time pass, half a second a turn, in which everybody is heard."""
    for _ in range(round(2 * seconds)):
        fleet.now_s += 0.5
        for replica in fleet.replicas.values():
            replica.follower.send_heartbeat(fleet.now_s)
            replica.actions += replica.follower.tick(fleet.now_s)
        fleet.settle()
        fleet.leader.tick(fleet.now_s)
        fleet.settle()


def node_of(replica: LocalReplica, name: str) -> str:
    return next(one.node for one in replica.actions if isinstance(one, Route) and one.id == name)


def balanced(fleet: LocalFleet) -> list[str]:
    """Have the leader share out what is idle; return the nodes of which slots are lent."""
    fleet.leader.balance(fleet.now_s)
    fleet.settle()
    return fleet.leader.decisions.lending.loans.nodes()


def measure(fleet: LocalFleet, workers: list[LocalReplica], rounds: int = 8) -> None:
    """Fill both nodes some times, each worker with half of it."""
    for number in range(rounds):
        running: dict[str, list[tuple[LocalReplica, str]]] = {name: [] for name in SERVICE_S}
        for place in range(6):
            worker, name = workers[place % 2], f"w{number}.{place}"
            worker.post(Arrived(name, "m", max_wait_s=0.0), fleet, settle=True)
            running[node_of(worker, name)].append((worker, name))
        assert [len(found) for found in running.values()] == [3, 3]
        for node in ("fast", "slow"):
            advance(fleet, SERVICE_S[node] - (SERVICE_S["fast"] if node == "slow" else 0.0))
            for worker, name in running[node]:
                worker.post(Finished(name, output_tokens=10), fleet)
            fleet.settle()


def serve(fleet: LocalFleet, worker: LocalReplica, name: str) -> str:
    """Run one request alone; return its node."""
    worker.post(Arrived(name, "m"), fleet, settle=True)
    node = node_of(worker, name)
    advance(fleet, SERVICE_S[node])
    worker.post(Finished(name, output_tokens=10), fleet, settle=True)
    return node


def test_slots_of_the_slower_node_are_lent_until_that_is_known_only() -> None:
    fleet = LocalFleet()
    workers = joined(fleet)
    assert balanced(fleet) == ["fast", "slow"]
    measure(fleet, workers)
    assert balanced(fleet) == ["fast"]


def test_what_ran_on_lent_slots_only_tells_how_fast_the_nodes_are() -> None:
    fleet = LocalFleet()
    workers = joined(fleet)
    balanced(fleet)
    for number in range(20):
        serve(fleet, workers[number % 2], f"r{number}")
        lent = balanced(fleet)
    assert lent == ["fast"]


def test_requests_of_either_worker_run_on_the_faster_node() -> None:
    fleet = LocalFleet()
    workers = joined(fleet)
    measure(fleet, workers)
    for number in range(12):
        assert serve(fleet, workers[number % 2], f"r{number}") == "fast"
        balanced(fleet)


def test_a_worker_waits_for_the_faster_node_while_the_other_fills_it() -> None:
    fleet = LocalFleet()
    one, two = joined(fleet)
    measure(fleet, [one, two])
    advance(fleet, 300.0)
    balanced(fleet)
    for name in ("a", "b", "d"):
        one.post(Arrived(name, "m"), fleet, settle=True)
    two.post(Arrived("c", "m"), fleet, settle=True)
    assert two.waiting[-1:] == ["c"]
    two.post(Inspected("c"), fleet, settle=True)
    told = next(action for action in two.actions if isinstance(action, Describe))
    assert (told.reason, told.waits_for, told.better_by) == ("better_node", "fast", "speed")
    advance(fleet, 1.0)
    one.post(Finished("a", output_tokens=10), fleet, settle=True)
    assert node_of(two, "c") == "fast"


def test_each_worker_tells_the_speeds_that_the_leader_measured() -> None:
    fleet = LocalFleet()
    workers = joined(fleet)
    measure(fleet, workers)
    for worker in workers:
        worker.post(Observed(), fleet, settle=True)
        picture = next(action for action in worker.actions if isinstance(action, Snapshot))
        speeds = {node.name: node.speed for node in picture.nodes}
        assert speeds["fast"] is not None
        assert speeds["slow"] is not None
        assert speeds["slow"] < 1.0 < speeds["fast"]
