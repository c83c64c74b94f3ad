"""The two halves of a replica that leads, in conversation: no store, and soon no batches either.

An announcement passes between them as it would between machines. From then on nothing can be lost,
come late or come twice on this way, so what the one says is handed to the other as it is: at a busy
gateway that leads, this is the way of every request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.coordination.follower import Follower
    from forebay.coordination.leader import Leader
    from forebay.core import Action


def exchange(follower: Follower, leader: Leader, now_s: float) -> list[Action]:
    """Let both talk until neither has anything to say; return what is to be performed."""
    me = leader.about.member
    actions: list[Action] = []
    while follower.leader == me:
        if follower.mode == "coordinated" and leader.own_half(follower.generation) is not None:
            _talk(follower, leader, actions, now_s)
        batches = follower.take_batches()
        for batch in batches:
            leader.receive(batch, now_s)
        orders = leader.members.orders_for(me)
        if orders is not None:
            actions += follower.hear(orders, now_s)
        elif not batches:
            break
    return actions


def _talk(follower: Follower, leader: Leader, actions: list[Action], now_s: float) -> None:
    """Hand over what there is, until there is no more or the follower announces anew."""
    own = leader.own_half(follower.generation)
    while own is not None and (follower.has_mail or own.out):
        leader.take(own, follower.take_items(), now_s)
        if own.out:
            items, own.out = own.out, []
            actions += follower.obey(items, now_s)
            own = leader.own_half(follower.generation)
