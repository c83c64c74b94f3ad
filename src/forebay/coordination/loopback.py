"""The two halves of a replica that leads, in conversation: no store, and soon no batches either.

An announcement passes between them as it would between machines. From then on nothing can be lost,
come late or come twice on this way, so what the one says is handed to the other as it is: at a busy
gateway that leads, this is the way of every request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.coordination.follower.follower import Follower
    from forebay.coordination.leader.leader import Leader
    from forebay.coordination.leader.tickets import Member
    from forebay.core import Action


def exchange(follower: Follower, leader: Leader, now_s: float) -> list[Action]:
    """Let both talk until neither has anything to say; return what is to be performed."""
    me = leader.about.member
    actions: list[Action] = []
    while follower.leader == me:
        own = leader.own_half(follower.generation) if follower.mode == "coordinated" else None
        if own is not None:
            if _talk(own, follower, leader, actions, now_s):
                break
            continue
        batches = follower.take_batches()
        for batch in batches:
            leader.receive(batch, now_s)
        orders = leader.members.orders_for(me)
        if orders is not None:
            actions += follower.hear(orders, now_s)
        elif not batches:
            break
    return actions


def _talk(
    own: Member, follower: Follower, leader: Leader, actions: list[Action], now_s: float
) -> bool:
    """Hand over what there is until there is no more; False when the follower begins anew."""
    generation = follower.generation
    while follower.has_mail or own.out:
        leader.take(own, follower.take_items(), now_s)
        if own.out:
            items, own.out = own.out, []
            actions += follower.obey(items, now_s)
            if follower.generation != generation or follower.mode != "coordinated":
                return False
    return True
