"""What other gateways were answered by a node excuses it here, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.gateway.fleet.node_answers import TELL_S, TOPIC

from .fleet_rig import A, B, two

if TYPE_CHECKING:
    from .fleet_rig import FleetRig


async def test_fault_79_a_gateway_with_one_sender_knows_that_the_node_answers_others_elsewhere(
    fleet: FleetRig,
) -> None:
    here, there, node = await two(fleet, retry={"attempts": 1})
    (backend,) = here.gateway.parts.nodes
    for _ in range(3):
        client, call = await here.run(node, stream=True)
        here.clock.advance(2.0)
        other, answered = await there.run(node)
        await answered.answer({})
        assert (await other.reply()).status == 200
        there.clock.advance(TELL_S)
        call.reset()
        assert (await client.reply()).status == 502
        assert backend.told.state == "online"
    told = [topic for one in (A, B) for topic, _ in fleet.fleets[one].broadcasts]
    assert told == [TOPIC] * 3
