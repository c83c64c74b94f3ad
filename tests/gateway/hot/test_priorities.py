"""Which class a request is in, and what that means for its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ..conftest import OK

if TYPE_CHECKING:
    from ..conftest import Rig


async def class_of(rig: Rig, **more: Any) -> str:
    """Send a request that has to wait and return the class it waits in."""
    before = (await rig.queue())["by_priority"]
    await rig.line_up(1, **more)
    after = (await rig.queue())["by_priority"]
    [name] = [name for name, waiting in after.items() if waiting > before[name]]
    return str(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("high", "high"), ("HIGH", "high"), ("  High\t", "high"), ("low", "low"),
        ("normal", "normal"), ("urgent", "normal"), ("", "normal"), ("high,low", "normal"),
        ("9", "normal"), ("h" * 5000, "normal"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("header", ["X-Forebay-Priority", "x-nexus-priority"])
async def test_a_header_names_the_class_and_nonsense_is_normal(
    rig: Rig, header: str, text: str, expected: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.run(node)
    assert await class_of(rig, headers={header: text}) == expected


async def test_our_own_header_wins_over_its_alias(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.run(node)
    both = {"X-Nexus-Priority": "high", "X-Forebay-Priority": "low"}
    assert await class_of(rig, headers=both) == "low"


@pytest.mark.parametrize(
    ("tier", "expected"),
    [
        ("priority", "high"), ("flex", "low"), ("auto", "normal"), ("default", "normal"),
        ("scale", "normal"), (None, "normal"),
    ],
)  # fmt: skip
async def test_a_service_tier_names_the_class_where_no_header_does(
    rig: Rig, tier: str | None, expected: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.run(node)
    assert await class_of(rig, service_tier=tier) == expected


async def test_a_header_wins_over_the_service_tier_even_when_it_is_nonsense(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.run(node)
    header = {"X-Forebay-Priority": "low"}
    assert await class_of(rig, service_tier="priority", headers=header) == "low"
    nonsense = {"X-Forebay-Priority": "?"}
    assert await class_of(rig, service_tier="priority", headers=nonsense) == "normal"


async def test_the_service_tier_still_reaches_the_node(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    _, call = await rig.run(node, service_tier="flex")
    assert call.json["service_tier"] == "flex"


async def test_a_service_tier_is_a_word_of_openai_only(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.run(node)
    anthropic = "/v1/messages"
    assert await class_of(rig, path=anthropic, service_tier="priority") == "normal"


async def test_every_urgent_request_runs_before_any_other_and_within_a_class_in_order(
    rig: Rig,
) -> None:
    node = await rig.node()
    await rig.start(node)
    _, call = await rig.run(node)
    for number, name in enumerate(("low", "normal", "high", "low", "normal", "high")):
        await rig.line_up(1, n=number, headers={"X-Forebay-Priority": name})
    order = []
    for _ in range(6):
        await call.answer(OK)
        call = await node.next_call()
        order.append(call.json["n"])
    assert order == [2, 5, 1, 4, 0, 3]


async def test_a_position_counts_who_would_run_before(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.run(node)
    await rig.line_up(2)
    await rig.line_up(1, headers={"X-Forebay-Priority": "high", "X-Request-Id": "urgent"})
    await rig.line_up(1, headers={"X-Forebay-Priority": "low", "X-Request-Id": "patient"})
    assert (await rig.get("/v1/queue/urgent")).json["position"] == 1
    assert (await rig.get("/v1/queue/patient")).json["position"] == 4


async def test_weighted_classes_share_instead_of_starving(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"priority": "weighted", "weights": {"high": 2, "low": 1}})
    _, call = await rig.run(node)
    for name in ("high", "low"):
        await rig.line_up(6, headers={"X-Forebay-Priority": name}, tier=name)
    order = []
    for _ in range(6):
        await call.answer(OK)
        call = await node.next_call()
        order.append(call.json["tier"])
    assert (order.count("high"), order.count("low")) == (4, 2)


async def test_a_request_that_has_waited_long_counts_as_more_urgent(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"aging_seconds": 10.0})
    _, call = await rig.run(node)
    await rig.line_up(1, n=0)
    rig.clock.advance(10.0)
    await rig.line_up(1, n=1, headers={"X-Forebay-Priority": "high"})
    await call.answer(OK)
    assert (await node.next_call()).json["n"] == 0
