"""Bodies that come as gzip: inflated within the bounds of all bodies, or refused."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from typing import TYPE_CHECKING

import pytest

from forebay.gateway.hot.inflation import MEMBERS_MAX, Inflater

from ..conftest import CHAT
from . import forms

if TYPE_CHECKING:
    from forebay.testing import RawClient

    from ..conftest import Rig

GZIP = {"Content-Encoding": "gzip"}
BODY = b'{"model": "m",  "messages": []}'


async def send(
    rig: Rig, body: bytes, headers: dict[str, str] | None = None, path: str = CHAT
) -> RawClient:
    client = await rig.client()
    await client.post(path, body, headers or GZIP)
    return client


@pytest.mark.parametrize("size", [0, 40_000, 3_000_000])
@pytest.mark.parametrize("coding", ["gzip", "GZIP", "x-gzip", "identity, gzip"])
async def test_a_gzip_body_reaches_the_node_inflated(rig: Rig, coding: str, size: int) -> None:
    node = await rig.node()
    await rig.start(node)
    body = BODY[:-1] + b', "pad": "' + b"x y" * (size // 3) + b'"}'
    client = await send(rig, gzip.compress(body), {"Content-Encoding": coding})
    call = await node.next_call()
    assert call.body == body
    assert "content-encoding" not in call.headers
    assert rig.gateway.parts.bodies.used_bytes == len(body)
    await call.answer({"choices": []})
    assert (await client.reply()).status == 200
    assert rig.gateway.parts.bodies.used_bytes == 0


async def test_streams_aliases_and_marks_go_with_gzip(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, models={"aliases": {"a": "m"}})
    client = await send(rig, gzip.compress(b'\xef\xbb\xbf{"model":"a", "stream":true}'))
    call = await node.next_call()
    assert call.body == b'{"model":"m", "stream":true}'
    await call.start_stream()
    await call.chunk(b"data: {}\n\n")
    assert (await client.head()).status == 200
    assert await client.chunk() == b"data: {}\n\n"
    await call.end()


async def test_a_form_may_be_gzip_too(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    body = forms.form(forms.field("model", "m"), forms.file(b"sound" * 1000))
    await send(rig, gzip.compress(body), {**forms.TYPE, **GZIP}, "/v1/audio/transcriptions")
    call = await node.next_call()
    assert call.body == body
    await call.answer({"text": ""})


async def test_streams_of_gzip_one_after_the_other_are_one_body(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await send(rig, gzip.compress(BODY[:10]) + gzip.compress(BODY[10:]))
    call = await node.next_call()
    assert call.body == BODY
    await call.answer({"choices": []})


WHOLE = gzip.compress(BODY)
BAD = {
    "nothing": b"",
    "no gzip": BODY,
    "zlib": zlib.compress(BODY),
    "cut off": WHOLE[:-1],
    "cut off in the middle": WHOLE[: len(WHOLE) // 2],
    "a wrong checksum": WHOLE[:-8] + b"\0\0\0\0" + WHOLE[-4:],
    "a wrong length": WHOLE[:-4] + b"\xff\xff\xff\x7f",
    "something after it": WHOLE + b"x",
    "too many streams": gzip.compress(b"") * MEMBERS_MAX + WHOLE,
    "no JSON inside": gzip.compress(b"hello"),
    "gzip inside": gzip.compress(WHOLE),
}


@pytest.mark.parametrize("why", BAD)
async def test_what_cannot_be_inflated_is_refused(rig: Rig, why: str) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await send(rig, BAD[why])
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (400, "invalid_request")
    assert reply.headers["x-should-retry"] == "false"
    assert node.calls == []
    assert rig.gateway.parts.bodies.used_bytes == 0
    await client.post(CHAT, WHOLE, GZIP)  # the connection goes on
    await (await node.next_call()).answer({"choices": []})
    assert (await client.reply()).status == 200


@pytest.mark.parametrize("coding", ["br", "zstd", "deflate", "gzip, gzip", "gzip, br"])
async def test_other_codings_are_not_offered(rig: Rig, coding: str) -> None:
    node = await rig.node()
    await rig.start(node)
    reply = await (await send(rig, WHOLE, {"Content-Encoding": coding})).reply()
    assert (reply.status, reply.json["error"]["code"]) == (400, "unsupported")
    assert reply.json["error"]["param"] == "content-encoding"
    assert node.calls == []


def bomb(size_bytes: int, claims_bytes: int | None = None) -> bytes:
    """Return gzip of that many blanks, which may say of itself that it is less."""
    made = gzip.compress(b" " * size_bytes)
    return made if claims_bytes is None else made[:-4] + claims_bytes.to_bytes(4, "little")


@pytest.mark.parametrize("claims", [None, 10, 2**32 - 1])
async def test_a_bomb_is_refused_and_leaves_nothing(rig: Rig, claims: int | None) -> None:
    node = await rig.node()
    await rig.start(node, server={"body_max_bytes": 1_000_000})
    reply = await (await send(rig, bomb(50_000_000, claims))).reply()
    assert (reply.status, reply.json["error"]["code"]) == (413, "body_too_large")
    assert rig.gateway.parts.bodies.used_bytes == 0
    assert node.calls == []


def test_a_bomb_is_inflated_no_further_than_there_is_room() -> None:
    inflater = Inflater(bomb(50_000_000, 10))
    for room in (10, 1_000_000):
        assert not inflater.inflate(room)
        assert inflater.made.size_bytes == room + 1


async def test_a_body_for_which_there_is_no_room_waits_for_it_and_gives_up_in_time(
    rig: Rig,
) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_bytes": 2_000_000}, server={"body_max_bytes": 1_900_000})
    held = rig.gateway.parts.bodies.take("other", 1_700_000)
    assert held is not None
    body = json.dumps({"model": "m", "messages": [], "pad": "x" * 900_000}).encode()
    late = await send(rig, gzip.compress(body))
    await rig.queue()
    rig.clock.advance(60.0)
    reply = await late.reply()
    assert (reply.status, reply.json["error"]["code"]) == (429, "queue_full")
    patient = await send(rig, gzip.compress(body))
    await rig.queue()
    assert node.calls == []
    held.release()
    call = await node.next_call()
    assert call.body == body
    await call.answer({"choices": []})
    assert (await patient.reply()).status == 200


async def test_a_client_that_leaves_while_its_body_is_inflated_or_waits_leaves_nothing(
    rig: Rig,
) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_bytes": 2_000_000}, server={"body_max_bytes": 1_900_000})
    bodies = rig.gateway.parts.bodies
    held = bodies.take("other", 1_700_000)
    assert held is not None
    waiting = await send(rig, bomb(900_000))
    await rig.queue()
    waiting.close()
    held.release()
    (await send(rig, bomb(1_500_000))).close()
    for _ in range(200):
        await rig.queue()
        if not (bodies.used_bytes or bodies.waiting):
            break
        await asyncio.sleep(0)
    assert (bodies.used_bytes, bodies.waiting) == (0, 0)
    assert node.calls == []
    assert len(rig.gateway.parts.inflations.under_way) == 0
