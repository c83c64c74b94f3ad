"""Calls that one gateway passes on to another: nobody gains a right by it, and none goes round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..sessions.session_steps import (
    Rpc,
    look,
    new_session,
)
from .fleet_rig import KEYS, SECRETS, A, B, C, bearer, two

if TYPE_CHECKING:
    from ..conftest import Rig
    from .fleet_rig import FleetRig


async def test_keys_are_asked_for_at_both_ends_and_rights_are_the_callers_own(
    fleet: FleetRig,
) -> None:
    wrong, owner, _ = await two(fleet, keys=KEYS, environ=SECRETS)
    session = await new_session(owner, bearer("sk-one"))
    path = f"/session/{session}"
    for there in (wrong, owner):
        assert (await there.get(path, bearer("sk-one"))).status == 200
        assert (await there.get(path, bearer("sk-boss"))).status == 200
        assert (await there.get(path, bearer("sk-two"))).status == 404
        assert (await there.get(path)).status == 401
        assert (await there.get(path, bearer("sk-none"))).status == 401


async def test_who_has_no_key_never_gets_as_far_as_the_other(fleet: FleetRig) -> None:
    wrong, owner, _ = await two(fleet, keys=KEYS, environ=SECRETS)
    session = await new_session(owner, bearer("sk-one"))
    await fleet.stop(B)
    assert (await wrong.get(f"/session/{session}")).status == 401


async def test_the_host_and_the_origin_are_checked_by_both(fleet: FleetRig) -> None:
    node = await fleet.node()
    wrong = await fleet.start(A, node, server={"allowed_hosts": ["a.test", "both.test"]})
    owner = await fleet.start(B, node, server={"allowed_hosts": ["b.test", "both.test"]})
    session = await new_session(owner, {"host": "b.test"})
    path = f"/session/{session}"
    assert (await wrong.get(path, {"host": "both.test"})).status == 200
    for host in ("a.test", "b.test", "evil.test"):
        reply = await wrong.get(path, {"host": host})
        assert (reply.status, reply.json["error"]["code"]) == (403, "forbidden_host")
    foreign = {"host": "both.test", "origin": "https://evil.test"}
    assert (await wrong.get(path, foreign)).status == 403


async def test_a_page_of_an_allowed_origin_is_told_so_once(fleet: FleetRig) -> None:
    origin = "https://chat.test"
    wrong, owner, _ = await two(fleet, server={"cors_origins": [origin]})
    session = await new_session(owner)
    client = await wrong.client()
    await client.get(f"/session/{session}", {"origin": origin})
    raw = (await client.head()).raw_head.lower()
    assert raw.count(b"access-control-allow-origin") == 1
    assert raw.count(b"vary") == 1


async def test_a_call_that_was_passed_on_is_not_the_operator_at_this_machine(rig: Rig) -> None:
    await rig.start(await rig.node())
    assert (await rig.get("/admin/nodes")).status == 200
    assert (await rig.get("/admin/nodes", {"x-forebay-hop": A})).status == 403


async def test_a_call_goes_no_further_than_one_gateway(fleet: FleetRig) -> None:
    wrong, owner, node = await two(fleet)
    session = await new_session(owner)
    await fleet.start(C, node)
    fleet.directory.addresses[B] = fleet.directory.addresses[C]  # a proxy that leads astray
    reply = await wrong.get(f"/session/{session}")
    assert (reply.status, reply.json["error"]["code"]) == (503, "replica_unavailable")
    assert f"gateway {B} was forwarded to {C}" in reply.json["error"]["message"]
    said = await Rpc(wrong).prompt(session, prompt="hi")
    assert (said.number, said.code) == (-32000, "replica_unavailable")


async def test_a_session_that_is_here_is_ours_whatever_its_id_says(fleet: FleetRig) -> None:
    _, owner, node = await two(fleet)
    session = await new_session(owner)
    await fleet.stop(B)
    renamed = await fleet.start(C, node, jobs={"database": f"sqlite:///{owner.folder}/jobs.db"})
    assert (await look(renamed, f"/session/{session}"))["sessionId"] == session
