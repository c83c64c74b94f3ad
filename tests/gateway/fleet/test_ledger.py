"""Several gateways on one PostgreSQL: whose sessions are whose, and what became of older ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..sessions.session_steps import (
    Http,
    Rpc,
    answer,
    follow,
    look,
    new_session,
    prompt,
    until_turn,
)
from .fleet_rig import A, B

if TYPE_CHECKING:
    from ..conftest import Rig
    from .fleet_rig import FleetRig


async def test_sessions_from_before_are_found_wherever_they_are_asked_for(
    fleet: FleetRig, rig: Rig, postgres_url: str
) -> None:
    node = await fleet.node(slots=4)
    database = {"database": postgres_url}
    await rig.start(node, sessions=database)
    session = await new_session(rig)
    await rig.gateway.stop(0.0)
    first = await fleet.start(A, node, sessions=database)
    second = await fleet.start(B, node, sessions=database)
    assert await look(second, f"/session/{session}") == await look(first, f"/session/{session}")
    asked = await prompt(second, session)
    await answer(await node.next_call(), "still here")
    assert (await until_turn(first, session, asked, "completed"))["text"] == "still here"
    assert (await Rpc(second).branch(session)).ok
    for there in (first, second):
        assert (await there.get(f"/session/ses_{'ab' * 16}")).status == 404
        assert (await there.get("/session/rubbish")).status == 404


async def test_one_that_comes_back_ends_its_own_prompts_and_no_others(
    fleet: FleetRig, postgres_url: str
) -> None:
    node = await fleet.node(slots=4)
    database = {"database": postgres_url}
    first = await fleet.start(A, node, sessions=database)
    second = await fleet.start(B, node, sessions=database)
    mine, other = await new_session(first), await new_session(second)
    of_other = await prompt(second, other)
    other_call = await node.next_call()
    reader = await follow(second, other)
    of_mine = await prompt(first, mine)
    await node.next_call()
    await fleet.stop(A)
    first = await fleet.start(A, node, sessions=database)
    ended = await until_turn(second, mine, of_mine, "failed", "cancelled")
    assert ended["error"]["code"] == "shutting_down"
    assert (await look(second, f"/session/{other}/turns/{of_other}"))["status"] == "running"
    await answer(other_call, "undisturbed")
    assert (await reader.end_of(of_other))["text"] == "undisturbed"
    assert (await look(first, f"/session/{other}"))["turns"] == 1


async def test_the_number_of_sessions_is_bounded_on_each(
    fleet: FleetRig, postgres_url: str
) -> None:
    node = await fleet.node()
    settings = {"sessions": {"database": postgres_url, "max_sessions": 1}}
    for name in (A, B):
        rig = await fleet.start(name, node, **settings)
        await new_session(rig)
        refused = await Http(rig).new(model="m")
        assert (refused.number, refused.code) == (503, "too_many_sessions")
