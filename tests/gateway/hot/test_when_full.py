"""Who makes room in a full queue, and what it is told."""

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
