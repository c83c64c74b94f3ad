"""What must be left when nothing is left: the one look inside, at the end of a world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.core import Observed, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.coordination.follower.follower import Follower
    from forebay.coordination.leader.leader import Leader
    from harness.fleet_simulation.actors import Gateway


def leftovers(gateways: Iterable[Gateway]) -> list[str]:
    """Return what is left of tickets and loans that should not be, and who is not in order."""
    alive = [gateway for gateway in gateways if gateway.alive]
    found = [
        f"{one.name} is {one.replica.mode}" for one in alive if one.replica.mode != "coordinated"
    ]
    leading = [one for one in alive if one.replica.leads]
    if len(leading) != 1 or found:
        return [*found, f"{len(leading)} lead"]
    leader = leading[0].replica.roles.leader
    assert leader is not None
    for gateway in alive:
        follower = gateway.replica.roles.follower
        if len(gateway.replica._ids) != len(follower.tickets):
            found.append(f"{gateway.name} has {len(gateway.replica._ids)} ids")
        if follower.tickets:
            found.append(f"{gateway.name} has tickets {sorted(follower.tickets)}")
        found += _compare_loans(leader, follower)
    return found + _look_at(leader, len(alive))


def uncounted(alive: Iterable[Gateway], served: int) -> list[str]:
    """Return who leads without counting all that living gateways have served."""
    leaders = [(one.name, one.replica.roles.leader) for one in alive]
    counted = [(name, leader.totals().served) for name, leader in leaders if leader is not None]
    return [
        f"{name} counts {count} of {served} served" for name, count in counted if count < served
    ]


def _look_at(leader: Leader, replicas: int) -> list[str]:
    tickets, found = leader.decisions.tickets, []
    if tickets._by_id or tickets._waiting or tickets._busy:
        found.append(f"the leader has {tickets._by_id} {tickets._waiting} {tickets._busy}")
    members = list(leader.members)
    if len(members) != replicas:
        found.append(f"the leader knows {len(members)} replicas of {replicas}")
    found += [f"{one.about.member} has tickets" for one in members if one.tickets or one.running]
    (*_, seen) = leader.decisions.scheduler.handle(Observed(), 0.0)
    assert isinstance(seen, Snapshot)
    if seen.waiting or seen.running:
        found.append(f"the core has {seen.waiting} waiting, {seen.running} running")
    for name, node in leader.decisions.scheduler._book.cluster.nodes.items():
        if node.lent != leader.decisions.lending.loans.idle_of(name):
            found.append(
                f"{name}: {node.lent} lent, {leader.decisions.lending.loans.idle_of(name)} in loans"
            )
        if node.lent > node.slots:
            found.append(f"{name}: {node.lent} lent of {node.slots}")
    return found


def _compare_loans(leader: Leader, follower: Follower) -> list[str]:
    """Both sides of each loan must agree."""
    member, found = follower.about.member, []
    theirs = {
        node: (loans[member].slots, loans[member].busy)
        for node, loans in leader.decisions.lending.loans._loans.items()
        if member in loans
    }
    ours = {node: (one.slots, one.busy) for node, one in follower._borrowed._loans.items()}
    if theirs != ours:
        found.append(f"{member} has loans {ours}, the leader says {theirs}")
    idle = sum(slots - busy for slots, busy in ours.values())
    if follower._borrowed.idle != idle:
        found.append(f"{member} counts {follower._borrowed.idle} idle slots of {idle}")
    return found
