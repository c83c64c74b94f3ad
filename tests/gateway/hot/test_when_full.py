"""Who makes room in a full queue, who would wait too long, and what they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ..conftest import OK

if TYPE_CHECKING:
    from forebay.testing import Call, FakeNode, RawClient

    from ..conftest import Rig

HIGH, LOW = {"x-forebay-priority": "high"}, {"x-forebay-priority": "low"}


async def busy(rig: Rig, **queue: Any) -> tuple[FakeNode, Call]:
    """Start a gateway whose only slot is taken, and where two may wait."""
    node = await rig.node()
    await rig.start(node, queue={"max_size": 2, **queue})
    _, running = await rig.run(node, user="z")
    return node, running


async def serve_all(node: FakeNode, running: Call, *clients: RawClient) -> list[int]:
    node.automatic = lambda call: call.answer(OK)
    await running.answer(OK)
    return [(await client.reply()).status for client in clients]


async def test_by_default_a_higher_class_takes_the_newest_place_of_a_lower_one(rig: Rig) -> None:
    node, running = await busy(rig)
    first, second = await rig.line_up(2, user="a", headers=LOW)
    urgent = await rig.ask(user="b", headers=HIGH)
    refused = await second.reply()
    assert (refused.status, refused.json["error"]["code"]) == (429, "queue_full")
    assert int(refused.headers["retry-after"]) >= 1
    equal = await (await rig.ask(user="c", headers=LOW)).reply()
    assert (equal.status, equal.json["error"]["code"]) == (429, "queue_full")
    assert await serve_all(node, running, urgent, first) == [200, 200]


async def test_a_stream_that_was_answered_is_the_last_to_go_and_told_in_the_stream(
    rig: Rig,
) -> None:
    node, running = await busy(rig, keepalive_seconds=5.0)
    [whole] = await rig.line_up(1, user="a", headers=LOW)
    [stream] = await rig.line_up(1, user="a", headers=LOW, stream=True)
    rig.clock.advance(5.0)
    assert (await stream.head()).status == 200
    assert (await stream.chunk() or b"").startswith(b": queued position=2")
    first = await rig.ask(user="b", headers=HIGH)
    assert (await whole.reply()).status == 429
    second = await rig.ask(user="b", headers=HIGH)
    last = (await stream.chunk() or b"").decode()
    assert '"code":"queue_full"' in last.replace(" ", "")
    assert not await stream.chunk()  # and nothing after it
    assert await serve_all(node, running, first, second) == [200, 200]


@pytest.mark.parametrize(
    ("queue", "status"), [({"when_full": "reject"}, 429), ({"profile": "nexus"}, 503)]
)
async def test_where_nobody_makes_room_the_newcomer_is_refused_whatever_its_class(
    rig: Rig, queue: dict[str, str], status: int
) -> None:
    node, running = await busy(rig, **queue)
    waiting = await rig.line_up(2, user="a")
    refused = await (await rig.ask(user="b", headers=HIGH)).reply()
    assert (refused.status, refused.json["error"]["code"]) == (status, "queue_full")
    assert await serve_all(node, running, *waiting) == [200, 200]


@pytest.mark.parametrize("profile", ["standard", "nexus"])
async def test_who_would_wait_over_twice_the_limit_is_refused_with_the_estimate(
    rig: Rig, profile: str
) -> None:
    limits = {"max_wait_seconds": 60.0, "full_status": 429, "max_size": 100, "fairness": "fifo"}
    node, running = await busy(rig, profile=profile, **limits)
    for _ in range(21):
        [client] = await rig.line_up(1)
        rig.clock.advance(20.0)
        await running.answer(OK)
        running = await node.next_call()
    waiting = await rig.line_up(5)
    body: dict[str, Any] = {"messages": ["the same"]}
    if profile == "nexus":
        waiting += await rig.line_up(5)
    else:
        waiting += await rig.line_up(1)  # its turn is in two minutes
        refused = await (await rig.ask(**body)).reply()
        error = refused.json["error"]
        assert (refused.status, error["code"]) == (429, "queue_full")
        assert error["message"] == "queue is full: would wait about 2 min, the limit is 60 s"
        assert error["estimated_wait_seconds"] == pytest.approx(140.0, rel=0.1)
        assert refused.headers["x-should-retry"] == "true"
        assert 48 <= int(refused.headers["retry-after"]) <= 60
        rig.clock.advance(30.0)
        waiting += await rig.line_up(1, **body)  # its turn is now nearer than that
    assert await serve_all(node, running, *waiting) == [200] * len(waiting)
    client.close()
