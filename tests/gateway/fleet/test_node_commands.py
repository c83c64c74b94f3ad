"""What an log does to nodes on one gateway holds on all; who missed it catches up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from forebay.gateway.fleet.node_commands import COMMANDS_MAX, REPEAT_S

from .fleet_rig import A, B, C, two

if TYPE_CHECKING:
    from ..conftest import Rig
    from .fleet_rig import FleetRig


async def nodes(rig: Rig) -> dict[str, str]:
    listed = (await rig.get("/admin/nodes")).json["data"]
    return {node["name"]: node["state"] for node in listed}


async def until_nodes(rig: Rig, expected: dict[str, str]) -> None:
    for _ in range(2000):
        if await nodes(rig) == expected:
            return
    raise AssertionError(f"{await nodes(rig)}, not {expected}")


async def test_what_is_done_to_a_node_holds_everywhere(fleet: FleetRig) -> None:
    here, there, node = await two(fleet)
    more = await fleet.node(models=["other"])
    body = json.dumps({"name": "more", "url": more.url, "slots": 3, "models": ["other"]}).encode()
    assert (await here.get("/admin/nodes", method="POST", body=body)).status == 201
    for rig in (here, there):
        await until_nodes(rig, {"n1": "online", "more": "online"})
    added = there.gateway.parts.nodes.get("more")
    assert added is not None
    assert (added.settings.slots, added.settings.models) == (3, ("other",))
    await there.get("/admin/nodes/more/drain", method="POST")
    await until_nodes(here, {"n1": "online", "more": "draining"})
    await here.get("/admin/nodes/more/resume", method="POST")
    await until_nodes(there, {"n1": "online", "more": "online"})
    await there.get("/admin/nodes/n1", method="DELETE")
    await until_nodes(here, {"more": "online"})
    told = [said["action"] for one in (A, B) for said in told_by(fleet, one)]
    assert sorted(told) == ["add", "drain", "remove", "resume"]  # and nothing is told on
    assert node is not None


async def test_to_hear_it_again_changes_nothing(
    fleet: FleetRig, caplog: pytest.LogCaptureFixture
) -> None:
    here, there, node = await two(fleet)
    hear = there.gateway.parts.node_commands.hear
    backend = there.gateway.parts.nodes.get("n1")
    for _ in range(2):
        hear("nodes", word("add", "n1", url=node.url))
        hear("nodes", word("remove", "nobody"))
        hear("nodes", word("resume", "n1"))
    assert there.gateway.parts.nodes.get("n1") is backend
    assert caplog.records == []
    assert fleet.fleets[A].broadcasts == fleet.fleets[B].broadcasts == []
    assert await nodes(here) == {"n1": "online"}


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"{", b"[]", b"\xff\xfe", b'{"word": {"action": "explode", "name": "n1"}}',
        b'{"word": {"action": "add", "name": "x"}}',
        b'{"word": {"action": "add", "name": "x y", "node": {"url": "http://h:1"}}}',
        b'{"word": {"action": "add", "name": "x", "node": {"url": "http://h:1/path"}}}',
        b'{"word": {"action": "add", "name": "x", "node": {"url": "http://h:1", "colour": "red"}}}',
        b'{"word": {"action": "add", "name":"x","node": {"api_key_env": "X", "url": "http://h"}}}',
        b'{"word": {"action": "add", "name": "n1", "node": {"url": "http://other:1"}}}',
        b'{"word": {"action": "add", "name": "x", "node": {"url": 7}}}',
        b'{"word": {"action": "remove", "name": 7}}',
        b"[" * 100_000,
    ],
)  # fmt: skip
async def test_what_makes_no_sense_is_logged_and_changes_nothing(
    fleet: FleetRig, payload: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    _, there, _ = await two(fleet)
    before = await nodes(there)
    there.gateway.parts.node_commands.hear("nodes", payload)
    assert await nodes(there) == before
    assert len(caplog.records) == 1
    there.gateway.parts.node_commands.hear("something else", payload)
    assert len(caplog.records) == 1


def word(action: str, name: str, number: int = 1, **node: Any) -> bytes:
    said = {"action": action, "name": name, "number": number, "by": C, "node": node}
    return json.dumps({"word": said}).encode()


def told_by(fleet: FleetRig, name: str) -> list[dict[str, Any]]:
    said = [json.loads(payload) for _, payload in fleet.fleets[name].broadcasts]
    return [one["word"] for one in said]


async def act(rig: Rig, name: str, action: str) -> None:
    method, path = ("DELETE", "") if action == "remove" else ("POST", f"/{action}")
    assert (await rig.get(f"/admin/nodes/{name}{path}", method=method)).status < 300


async def add(rig: Rig, name: str, url: str) -> None:
    body = json.dumps({"name": name, "url": url}).encode()
    assert (await rig.get("/admin/nodes", method="POST", body=body)).status == 201


def remind(fleet: FleetRig, name: str) -> None:
    """Let the time pass after which a gateway repeats everything."""
    fleet.rigs[name].clock.advance(REPEAT_S)


async def test_one_that_starts_later_learns_what_was_done(fleet: FleetRig) -> None:
    here, there, node = await two(fleet)
    more = await fleet.node()
    await add(here, "more", more.url)
    await until_nodes(there, {"n1": "online", "more": "online"})
    await act(there, "more", "drain")
    await until_nodes(here, {"n1": "online", "more": "draining"})
    await fleet.stop(B)
    again = await fleet.start(B, node)
    assert await nodes(again) == {"n1": "online"}
    remind(fleet, A)
    await until_nodes(again, {"n1": "online", "more": "draining"})
    await act(again, "more", "resume")
    await until_nodes(here, {"n1": "online", "more": "online"})


async def test_one_that_missed_it_learns_from_any_other(fleet: FleetRig) -> None:
    here, there, node = await two(fleet)
    third = await fleet.start(C, node)
    fleet.directory.deaf.add(A)
    await act(there, "n1", "drain")
    await until_nodes(third, {"n1": "draining"})
    assert await nodes(here) == {"n1": "online"}
    fleet.directory.deaf.clear()
    remind(fleet, C)
    await until_nodes(here, {"n1": "draining"})


async def test_of_two_words_the_later_one_holds_everywhere_whatever_the_clocks_say(
    fleet: FleetRig,
) -> None:
    here, there, _ = await two(fleet)
    here.clock.advance(3600.0)  # it is an hour ahead
    await act(here, "n1", "drain")
    await until_nodes(there, {"n1": "draining"})
    await act(there, "n1", "resume")
    await until_nodes(here, {"n1": "online"})
    for name in (A, B):
        remind(fleet, name)
    for rig in (here, there):
        await until_nodes(rig, {"n1": "online"})


async def test_an_old_word_changes_nothing(fleet: FleetRig) -> None:
    _, there, _ = await two(fleet)
    hear = there.gateway.parts.node_commands.hear
    hear("nodes", word("drain", "n1", 7))
    hear("nodes", word("resume", "n1", 6))
    assert await nodes(there) == {"n1": "draining"}
    hear("nodes", word("resume", "n1", 8))
    assert await nodes(there) == {"n1": "online"}


async def test_a_node_that_the_settings_name_anew_is_not_removed_by_an_old_word(
    fleet: FleetRig,
) -> None:
    here, there, _ = await two(fleet)
    other = await fleet.node()
    await add(here, "x", other.url)
    await act(here, "x", "remove")
    await until_nodes(there, {"n1": "online"})
    for rig in (here, there):
        rig.given["nodes"] = [*rig.given["nodes"], {"name": "x", "url": other.url}]
        assert (await rig.get("/admin/reload", method="POST")).status == 200
    log = there.gateway.parts.node_commands
    log._commands.clear()  # as a new one knows nothing
    remind(fleet, A)
    for rig in (here, there):
        await until_nodes(rig, {"n1": "online", "x": "online"})
    assert set(log._commands) == {"node x"}


async def test_words_are_bounded(fleet: FleetRig) -> None:
    _, there, _ = await two(fleet)
    log = there.gateway.parts.node_commands
    for number in range(COMMANDS_MAX + 10):
        log.hear("nodes", word("remove", f"n-{number}", number))
    assert len(log._commands) == COMMANDS_MAX


async def test_alone_nothing_is_remembered(rig: Rig) -> None:
    await rig.start(await rig.node())
    await act(rig, "n1", "drain")
    await act(rig, "n1", "resume")
    assert rig.gateway.parts.node_commands._commands == {}
