"""`forebay nodes`: a running gateway's nodes come, go, drain and resume."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from forebay.api.nodes import Node
from forebay.cli.output.tables import node_table
from forebay.settings import digest_of

if TYPE_CHECKING:
    from .conftest import Desk


async def test_a_node_is_added_listed_and_removed(desk: Desk) -> None:
    gateway, node = await desk.start(), await desk.node(slots=3)
    added = await desk.run("nodes", "add", node.url, "--name", "gpu1", "--slots", "2")
    assert added.exit_code == 0, added.output
    assert "Node gpu1 was added" in added.stdout
    await gateway.parts.nodes.first_probes(10.0)
    (listed,) = json.loads((await desk.run("nodes", "list", "--json")).stdout)
    assert (listed["name"], listed["slots"], listed["state"]) == ("gpu1", 2, "online")
    assert (listed["speed"], listed["speed_measured_seconds_ago"]) == (None, None)
    shown = (await desk.run("nodes", "list")).stdout
    assert "gpu1" in shown
    assert "0 of 2" in shown
    assert node.url in shown
    removed = await desk.run("nodes", "remove", "gpu1")
    assert removed.exit_code == 0
    assert "There are no nodes" in (await desk.run("nodes", "list")).stdout


async def test_the_list_says_why_a_node_has_its_slots_where_nobody_set_them(desk: Desk) -> None:
    await desk.start(await desk.node(slots=3))
    shown = (await desk.run("nodes", "list")).stdout
    assert "n1 has 3 slots: the node says that it runs 3 at once" in shown


async def test_the_list_says_what_a_node_s_cache_has_room_for(desk: Desk) -> None:
    gateway = await desk.start(await desk.node())
    assert "tokens free" not in (await desk.run("nodes", "list")).stdout
    backend = gateway.parts.nodes.get("n1")
    assert backend is not None
    backend.heard(1, None, 52_000)
    assert "52,000 tokens free" in (await desk.run("nodes", "list")).stdout


def test_the_list_says_how_fast_a_node_is_once_it_was_measured() -> None:
    measured = Node("gpu1", speed=0.4, speed_measured_seconds_ago=180.0)
    speeds = node_table([measured, Node("gpu2")]).columns[4]
    assert (speeds.header, *speeds.cells) == ("Speed", "0.40 x usual, 3 min ago", "")


async def test_a_node_is_drained_and_resumed(desk: Desk) -> None:
    gateway = await desk.start(await desk.node())
    drained = await desk.run("nodes", "drain", "n1")
    assert "forebay nodes resume n1" in drained.stdout
    backend = gateway.parts.nodes.get("n1")
    assert backend is not None
    assert backend.told.state == "draining"
    resumed = await desk.run("nodes", "resume", "n1", "--json")
    assert json.loads(resumed.stdout)["state"] == "online"


async def test_a_refusal_is_told_in_the_gateways_own_words(desk: Desk) -> None:
    node = await desk.node()
    await desk.start(node)
    for words, part in (
        (("remove", "nobody"), "no node of that name"),
        (("drain", "a/b"), "nothing at /admin/nodes/a/b/drain"),
        (("add", node.url, "--name", "n1"), "'n1' already"),
    ):
        done = await desk.run("nodes", *words)
        assert done.exit_code == 1, words
        assert "the gateway says" in done.stderr
        assert part in done.stderr
        assert "Traceback" not in done.output


async def test_a_key_that_is_no_admins_may_not(desk: Desk) -> None:
    await desk.start(keys=[{"name": "team", "key_sha256": digest_of("team-secret")}])
    done = await desk.run("nodes", "list", "--key-env", "TEAM", TEAM="team-secret")
    assert done.exit_code == 4
    assert "Name another key with --key-env" in done.stderr
