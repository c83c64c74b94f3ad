"""What stock clients send is admitted, and reaches a node as it came."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import httptools
import pytest

from forebay.gateway.hot.admission import HOT_ROUTES
from harness.recordings import KEY, MODEL, Recording, recordings
from harness.recordings.answers import ANSWERS

if TYPE_CHECKING:
    from .conftest import Rig

everyone = pytest.mark.parametrize("recording", recordings(), ids=lambda one: one.name)


class Heard:
    """What the parser makes of a request."""

    def __init__(self) -> None:
        self.body = b""
        self.whole = False

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.whole = True


@everyone
def test_a_recording_is_one_whole_request_as_long_as_it_says(recording: Recording) -> None:
    heard = Heard()
    httptools.HttpRequestParser(heard).feed_data(recording.request)
    assert heard.whole
    assert heard.body == recording.body
    length = re.search(rb"\r\ncontent-length: (\d+)\r\n", recording.head, re.IGNORECASE)
    assert length
    assert int(length[1]) == len(recording.body)


@everyone
def test_a_reader_finds_the_model_and_whether_it_streams(recording: Recording) -> None:
    family, route = HOT_ROUTES[recording.route.encode()]
    fields = family.reader.read(recording.body)
    assert fields.model == MODEL
    assert family.is_stream(fields, route) is recording.is_stream
    assert bool(fields.told()[0]) is (b"user-0042" in recording.body)


@everyone
async def test_the_gateway_passes_a_recording_on_as_it_came(rig: Rig, recording: Recording) -> None:
    kind = "ollama" if recording.route.startswith("/api/") else "llama.cpp"
    node = await rig.node(kind=kind, models=[MODEL])
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    await rig.start(node, keys=[{"name": "recorded", "key_sha256": digest}])
    rig.headers = {"authorization": f"Bearer {KEY}"}
    client = await rig.client()
    await client.send(recording.request)
    call = await node.next_call()
    assert call.body == recording.body
    answer = ANSWERS[recording.route]
    if recording.is_stream:
        await call.start_stream(headers={"content-type": answer.stream_type})
        for piece in (answer.first, answer.token, answer.last):
            await call.chunk(piece.encode())
        await call.end()
    else:
        await call.answer(answer.whole.encode(), headers={"content-type": "application/json"})
    reply = await client.reply()
    assert reply.status == 200
    sent = answer.first + answer.token + answer.last if recording.is_stream else answer.whole
    assert reply.body == sent.encode()


def test_nothing_of_the_machine_that_recorded_them_is_in_them() -> None:
    for recording in recordings():
        assert re.search(rb"\r\nhost: localhost\r\n", recording.head, re.IGNORECASE)
        keys = re.findall(rb"\r\n(?:authorization: Bearer|x-api-key:) (\S+)", recording.head, re.I)
        assert keys == [KEY.encode()]
        assert not re.search(rb"/home/|/root|/tmp|127\.0\.0\.1|localhost:", recording.request)
