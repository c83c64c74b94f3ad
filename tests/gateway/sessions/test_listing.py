"""`GET /session`: whose sessions there are, page by page, on all gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..fleet.fleet_rig import B, two
from ..jobs.job_steps import ENVIRON, KEYS, bearer
from .session_steps import answer, new_session, prompt, until_turn

if TYPE_CHECKING:
    from ..conftest import Rig
    from ..fleet.fleet_rig import FleetRig


async def listed(rig: Rig, query: str = "", headers: dict[str, str] | None = None) -> Any:
    reply = await rig.get(f"/session{query}", headers)
    assert reply.status == 200, reply.body
    return reply.json


async def test_a_session_is_listed_with_what_it_is_doing(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    assert await listed(rig) == {"data": [], "has_more": False}
    session = await new_session(rig)
    (shown,) = (await listed(rig))["data"]
    assert shown == {
        "sessionId": session, "model": "m", "status": "idle", "pending": 0, "turns": 0,
        "createdAt": shown["createdAt"], "usedAt": shown["usedAt"], "owner": "",
    }  # fmt: skip
    sent = await prompt(rig, session, "hello")
    call = await node.next_call()
    (shown,) = (await listed(rig))["data"]
    assert (shown["status"], shown["pending"]) == ("running", 1)
    await answer(call, "hello")
    await until_turn(rig, session, sent, "completed")
    (shown,) = (await listed(rig))["data"]
    assert (shown["status"], shown["pending"], shown["turns"]) == ("idle", 0, 1)


async def test_a_key_lists_its_own_sessions_and_an_admin_everybodys(rig: Rig) -> None:
    await rig.start(await rig.node(), keys=KEYS, environ=ENVIRON)
    made: dict[str, str] = {}
    for name in ("A", "B"):
        rig.headers = bearer(name)
        made[name] = await new_session(rig)
    for name in ("A", "B"):
        (shown,) = (await listed(rig, headers=bearer(name)))["data"]
        assert shown["sessionId"] == made[name]
        assert "owner" not in shown
    seen = (await listed(rig, headers=bearer("ROOT")))["data"]
    assert {one["sessionId"]: one["owner"] for one in seen} == {made["A"]: "a", made["B"]: "b"}


async def test_without_keys_only_this_machine_may_list(rig: Rig) -> None:
    await rig.start(await rig.node())
    reply = await rig.get("/session", {"x-forwarded-for": "10.0.0.9"})
    assert (reply.status, reply.json["error"]["code"]) == (403, "forbidden")
    foreign = await rig.get("/session", {"origin": "http://elsewhere"})
    assert foreign.status == 403


async def test_pages_follow_each_other_and_leave_nothing_out(rig: Rig) -> None:
    await rig.start(await rig.node())
    made = []
    for _ in range(5):
        made.append(await new_session(rig))
        rig.clock.advance(1.0)
    first = await listed(rig, "?limit=2")
    second = await listed(rig, f"?limit=2&before={first['next']}")
    last = await listed(rig, f"?limit=2&before={second['next']}")
    seen = [one["sessionId"] for page in (first, second, last) for one in page["data"]]
    assert seen == made[::-1]
    assert [page["has_more"] for page in (first, second, last)] == [True, True, False]
    for wrong in ("limit=0", "limit=1001", "limit=x", "before=yesterday", "before=_x"):
        assert (await rig.get(f"/session?{wrong}")).status == 400


async def test_any_gateway_lists_those_of_all_and_says_whose_are_missing(fleet: FleetRig) -> None:
    here, there, _ = await two(fleet, keys=KEYS, environ=ENVIRON)
    for rig in (here, there):
        rig.headers = bearer("ROOT")
    made = {await new_session(rig) for rig in (here, there, here)}
    seen = await listed(here, headers=bearer("ROOT"))
    assert {one["sessionId"] for one in seen["data"]} == made
    assert "incomplete" not in seen
    page = await listed(there, "?limit=2", bearer("ROOT"))
    assert (len(page["data"]), page["has_more"]) == (2, True)
    await there.gateway.stop(0.0)
    left = await listed(here, headers=bearer("ROOT"))
    assert {one["sessionId"] for one in left["data"]} < made
    assert left["incomplete"] == [B]
