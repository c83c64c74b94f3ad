"""How fast nodes are, and why a request waits for a busy one: as the routes show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from forebay.core import Describe
from forebay.gateway.routes.queue import reason_of

from ..conftest import OK

if TYPE_CHECKING:
    from forebay.testing import FakeNode

    from ..conftest import Rig

AT_ONCE = {"X-Forebay-Max-Wait": "0"}


async def unequal(rig: Rig) -> tuple[FakeNode, FakeNode]:
    """Start a gateway before a node that takes 1 s and one that takes 5 s; both are measured."""
    fast, slow = await rig.node(slots=1), await rig.node(slots=1)
    await rig.start(fast, slow)
    for _ in range(6):
        ones, first = await rig.run(fast, headers=AT_ONCE)
        others, second = await rig.run(slow, headers=AT_ONCE)
        rig.clock.advance(1.0)
        await first.answer(OK)
        assert (await ones.reply()).status == 200
        rig.clock.advance(4.0)
        await second.answer(OK)
        assert (await others.reply()).status == 200
    return fast, slow


async def nodes(rig: Rig) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for node in (await rig.get("/admin/nodes")).json["data"]}


async def test_the_nodes_are_listed_with_their_speeds(rig: Rig) -> None:
    await unequal(rig)
    rig.clock.advance(2.0)
    listed = await nodes(rig)
    assert 0.0 < listed["n2"]["speed"] < 1.0 < listed["n1"]["speed"]
    assert 3.5 < listed["n1"]["speed"] / listed["n2"]["speed"] <= 5.0
    assert listed["n1"]["speed_measured_seconds_ago"] == pytest.approx(6.0, abs=0.1)
    assert listed["n2"]["speed_measured_seconds_ago"] == pytest.approx(2.0, abs=0.1)


async def test_the_speed_of_a_node_that_served_nothing_is_null(rig: Rig) -> None:
    await rig.start(await rig.node(), await rig.node())
    for node in (await nodes(rig)).values():
        assert (node["speed"], node["speed_measured_seconds_ago"]) == (None, None)


async def test_a_request_that_waits_for_a_faster_node_says_so_and_until_when(rig: Rig) -> None:
    fast, _ = await unequal(rig)
    running, call = await rig.run(fast)
    [waiting] = await rig.line_up(1, headers={"X-Request-Id": "w"})
    rig.clock.advance(0.25)
    seen = (await rig.get("/v1/queue/w")).json
    assert seen["reason_code"] == "better_node"
    assert seen["reason"] == "waits for n1: it is 4 x as fast as what is free"
    better = seen["better_node"]
    assert (better["node"], better["why"]) == ("n1", "speed")
    assert better["times_as_fast"] == pytest.approx(4.0, abs=0.05)
    assert 0.0 < better["seconds_gained"] < 4.0
    assert better["seconds_left"] == pytest.approx(4.75, abs=1.0)
    rig.clock.advance(0.25)
    later = (await rig.get("/v1/queue/w")).json["better_node"]
    assert later["seconds_left"] == pytest.approx(better["seconds_left"] - 0.25, abs=0.01)
    [row] = (await rig.get("/v1/queue/requests?state=waiting")).json["data"]
    assert (row["reason"], row["reason_code"]) == (seen["reason"], "better_node")
    await call.answer(OK)
    await (await fast.next_call()).answer(OK)
    assert (await running.reply()).status == 200
    assert (await waiting.reply()).headers["x-forebay-node"] == "n1"


async def test_a_request_that_waits_for_its_time_runs_on_the_slower_node(rig: Rig) -> None:
    fast, slow = await unequal(rig)
    _, call = await rig.run(fast)
    [waiting] = await rig.line_up(1, headers={"X-Request-Id": "w"})
    rig.clock.advance((await rig.get("/v1/queue/w")).json["better_node"]["seconds_left"] + 0.001)
    late = await slow.next_call()
    seen = (await rig.get("/v1/queue/w")).json
    assert (seen["state"], seen["better_node"]) == ("running", None)
    await late.answer(OK)
    await call.answer(OK)
    assert (await waiting.reply()).headers["x-forebay-node"] == "n2"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"better_by": "memory"}, "waits for gpu2: its model is in memory there"),
        (
            {"better_by": "prompt", "cached_tokens": 6100, "prompt_tokens": 6400},
            "waits for gpu2: 6,100 of 6,400 prompt tokens are cached there",
        ),
        (
            {"better_by": "speed", "times_as_fast": 4.0},
            "waits for gpu2: it is 4 x as fast as what is free",
        ),
        (
            {"better_by": "speed", "times_as_fast": 1.63},
            "waits for gpu2: it is 1.6 x as fast as what is free",
        ),
    ],
)
def test_each_way_to_be_better_has_its_words(told: dict[str, Any], words: str) -> None:
    seen = Describe("w", "waiting", 1.0, 0, reason="better_node", waits_for="gpu2", **told)
    assert reason_of(seen) == words
