"""Rows 16-18: neither many names, nor a busy class, nor batch work keeps the others out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .conftest import FIRST, SECOND, bearer, key

if TYPE_CHECKING:
    from forebay.testing import FakeNode

    from .conftest import FaultRig


async def serve(node: FakeNode, count: int) -> list[str]:
    """Serve so many on the only slot; return whom, by their mark."""
    order = []
    for _ in range(count):
        call = await node.next_call()
        order.append(call.json["mark"])
        await call.answer({})
    return order


async def test_fault_16_a_thousand_names_under_one_key_are_one_user(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node, keys=[key("first"), key("second")], queue={"max_size": 1000})
    for number in range(300):
        name = {"x-forebay-user": f"h{number}"} if number % 2 else {}
        await rig.ask(mark="many", user=f"u{number}", headers=bearer(FIRST, **name))
    await rig.wait_until("waiting", 299)
    await rig.ask(mark="one", headers=bearer(SECOND))
    await rig.wait_until("waiting", 300)
    assert await serve(node, 4) == ["many", "one", "many", "many"]


async def test_fault_16_the_names_of_a_trusted_application_count_but_only_under_its_key(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    keys = [key("first", trust_user=True), key("second")]
    await rig.start(node, keys=keys, queue={"max_size": 1000})
    await rig.ask(mark="first", headers=bearer(FIRST))
    await rig.wait_until("processing", 1)
    for user, mark in (("a", "a1"), ("a", "a2"), ("second", "named second")):
        await rig.ask(mark=mark, user=user, headers=bearer(FIRST))
    await rig.wait_until("waiting", 3)
    await rig.ask(mark="second", headers=bearer(SECOND))
    await rig.wait_until("waiting", 4)
    assert await serve(node, 5) == ["first", "a1", "named second", "second", "a2"]


async def test_fault_17_a_saturated_high_class_leaves_low_its_floor_in_weighted_mode(
    rig: FaultRig,
) -> None:
    node = await rig.node()
    weights = {"high": 8.0, "normal": 4.0, "low": 1.0}
    queue = {"priority": "weighted", "weights": weights, "max_size": 1000}
    await rig.start(node, queue=queue)
    for _ in range(60):
        await rig.ask(mark="high", headers={"x-forebay-priority": "high"})
    for _ in range(5):
        await rig.ask(mark="low", headers={"x-forebay-priority": "low"})
    await rig.wait_until("waiting", 64)
    order = await serve(node, 28)
    assert order.count("low") in (2, 3)  # a ninth of what runs
    assert "low" in order[:11]
    assert "low" in order[11:21]


async def test_fault_17_in_strict_mode_high_goes_first_as_the_operator_chose(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node)
    for _ in range(20):
        await rig.ask(mark="high", headers={"x-forebay-priority": "high"})
    await rig.ask(mark="low", headers={"x-nexus-priority": "low"})
    await rig.wait_until("waiting", 20)
    assert await serve(node, 21) == ["high"] * 20 + ["low"]


async def test_fault_18_chat_behind_batch_waits_for_one_running_request_at_most(
    rig: FaultRig,
) -> None:
    node = await rig.node(slots=2)
    await rig.start(node)
    for _ in range(12):
        await rig.ask(mark="batch", service_tier="flex")
    await rig.wait_until("waiting", 10)
    running = [await node.next_call() for _ in range(2)]
    await rig.ask(mark="chat", service_tier="priority")
    await rig.wait_until("waiting", 11)
    await running[1].answer({})  # the first of those that ran when it came
    assert (await node.next_call()).json["mark"] == "chat"
    assert node.running == 2
