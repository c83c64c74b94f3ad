"""Sound and pictures: forms whose model is a field, answers that are not JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from forebay.relay.forms import HEAD_BYTES_MAX, PARTS_MAX, VALUE_BYTES_MAX, WINDOW, form_reader

from . import forms
from .forms import BOUNDARY

if TYPE_CHECKING:
    from forebay.testing import RawClient

    from ..conftest import Rig

SPEECH_TO_TEXT = "/v1/audio/transcriptions"
FILE = ("file", b"RIFF\x00\xff\r\n--\r\n not a boundary \x00", "speech.wav")
TYPE = f"multipart/form-data; boundary={BOUNDARY}"


def form(*fields: tuple[str, bytes] | tuple[str, bytes, str]) -> bytes:
    """Write a form of fields, and of files where a file's name is given."""
    parts = [
        forms.file(given[1], given[2], given[0]) if len(given) == 3 else forms.field(*given)
        for given in fields
    ]
    return forms.form(*parts)


async def send(
    rig: Rig, body: bytes, path: str = SPEECH_TO_TEXT, content_type: str = TYPE
) -> RawClient:
    client = await rig.client()
    await client.post(path, body, {"content-type": content_type})
    return client


@pytest.mark.parametrize("path", [SPEECH_TO_TEXT, "/v1/images/edits", "/v1/audio/other/thing"])
async def test_a_form_reaches_the_node_byte_for_byte(rig: Rig, path: str) -> None:
    node = await rig.node()
    await rig.start(node)
    body = form(FILE, ("model", b"m"), ("language", b"en"))
    client = await send(rig, body, path)
    call = await node.next_call()
    assert call.body == body
    assert call.headers["content-type"] == TYPE
    await call.answer({"text": "hello"})
    assert (await client.reply()).json == {"text": "hello"}


@pytest.mark.parametrize("size", [10, 300_000, 5_000_000])
async def test_only_the_model_of_a_form_is_rewritten_and_only_for_an_alias(
    rig: Rig, size: int
) -> None:
    node = await rig.node()
    await rig.start(node, models={"aliases": {"whisper-1": "m"}})
    sound = ("file", b"s\r" * (size // 2), "a.wav")
    client = await send(rig, form(sound, ("model", b"whisper-1"), ("user", b"u")))
    call = await node.next_call()
    assert call.body == form(sound, ("model", b"m"), ("user", b"u"))
    await call.answer({"text": ""})
    assert (await client.reply()).headers["x-forebay-model"] == "m"


async def test_azures_path_names_the_model_of_a_form_that_does_not(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await send(rig, form(FILE), "/openai/deployments/m/audio/transcriptions?api-version=1")
    call = await node.next_call()
    assert call.path == f"{SPEECH_TO_TEXT}?api-version=1"
    assert call.body == form(("model", b"m"), FILE)
    await call.answer({"text": ""})
    assert (await client.reply()).status == 200


async def test_forms_wait_in_line_and_their_user_is_read(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, queue={"max_per_user": 1})
    await rig.run(node)
    waiting = await send(rig, form(FILE, ("model", b"m"), ("user", b"anna")))
    await rig.wait_until("waiting", 1)
    second = await (await send(rig, form(FILE, ("model", b"m"), ("user", b"anna")))).reply()
    assert (second.status, second.json["error"]["code"]) == (429, "user_queue_full")
    waiting.close()
    await rig.wait_until("waiting", 0)


def part(head: str, value: bytes = b"m") -> bytes:
    return f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + value + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()
NAMED = 'Content-Disposition: form-data; name="model"'
BAD_FORMS = {
    "no model": form(FILE),
    "an empty model": form(("model", b"")),
    "a model twice": form(("model", b"m"), ("model", b"other")),
    "a model that is a file": form(("model", b"m", "m.txt")),
    "other capitals": form(("model", b"m"), ("Model", b"other")),
    "a blank around the name": form(("model", b"m"), (" model", b"other")),
    "an escaped name": part('Content-Disposition: form-data; name="mo\\del"', b"x") + END,
    "two names": part(f'{NAMED}; name="file"') + END,
    "a name in other words": part(f"{NAMED}; name*=utf-8''file") + END,
    "a coded value": part(f"{NAMED}\r\nContent-Transfer-Encoding: base64", b"bQ==") + END,
    "another character set": part(f"{NAMED}\r\nContent-Type: text/plain; charset=utf-16") + END,
    "another character set for all": form(("_charset_", b"utf-7"), ("model", b"m")),
    "a folded header": part(f"{NAMED};\r\n x=y") + END,
    "a header twice": part(f'{NAMED}\r\nContent-Disposition: form-data; name="file"') + END,
    "a bare line feed": part(f"{NAMED}\nX: y") + END,
    "no disposition": part("X: y") + END,
    "a boundary in the middle of a line": form(
        ("file", f"x--{BOUNDARY}\r\n{NAMED}\r\n\r\nother".encode(), "f"), ("model", b"m")
    ),
    "a boundary after a bare line feed": form(
        ("file", f"x\n--{BOUNDARY}\n{NAMED}\n\nother\n".encode(), "f"), ("model", b"m")
    ),
    "text before the first part": b"hello\r\n" + form(("model", b"m")),
    "text after the last part": form(("model", b"m")) + form(("model", b"other")),
    "blanks without end after the last part": form(("model", b"m")) + b" " * 5000,
    "no end": form(("model", b"m")).removesuffix(END),
    "half a boundary": form(("model", b"m"))[:-10],
    "nothing": b"",
    "a head without end": part(f"{NAMED}\r\nX: {'y' * HEAD_BYTES_MAX}") + END,
    "a model that is too long": form(("model", b"m" * (VALUE_BYTES_MAX + 1))),
    "a model that is no text": form(("model", b"\xff")),
    "too many parts": form(*[(f"f{n}", b"") for n in range(PARTS_MAX)], ("model", b"m")),
}


@pytest.mark.parametrize("why", BAD_FORMS)
async def test_a_form_that_others_may_read_otherwise_is_refused(rig: Rig, why: str) -> None:
    node = await rig.node()
    await rig.start(node)
    reply = await (await send(rig, BAD_FORMS[why])).reply()
    assert (reply.status, reply.json["error"]["code"]) == (400, "invalid_request")
    assert node.calls == []


@pytest.mark.parametrize(
    "content_type",
    ["multipart/form-data", "multipart/form-data; boundary=", "multipart/mixed; boundary=x",
     f"multipart/form-data; boundary={'x' * 71}", "multipart/form-data; boundary=x; boundary=y",
     "multipart/form-data; boundary=x; charset=utf-16"],
)  # fmt: skip
async def test_a_form_of_which_nobody_knows_how_it_is_cut_is_refused(
    rig: Rig, content_type: str
) -> None:
    await rig.start(await rig.node())
    reply = await (await send(rig, form(("model", b"m")), content_type=content_type)).reply()
    assert (reply.status, reply.json["error"]["param"]) == (400, "content-type")


async def test_a_client_that_leaves_while_its_form_is_read_leaves_nothing(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    clients = [
        await send(rig, form(("file", b"x" * 8_000_000, "f"), ("model", b"m"))) for _ in range(3)
    ]
    for client in clients:
        client.close()
    bodies = rig.gateway.parts.bodies
    for _ in range(2000):
        if (await rig.queue())["processing"] == 0 and not bodies.used_bytes:
            break
    assert bodies.used_bytes == 0


ANSWERS = {
    "a transcript": (b"Hello there.", {"content-type": "text/plain; charset=utf-8"}),
    "subtitles": (b"WEBVTT\n\n00:00 --> 00:01\nhi", {"content-type": "text/vtt"}),
    "silence": (b"", {"content-type": "text/plain"}),
    "sound": (bytes(range(256)) * 4000, {"content-type": "audio/mpeg"}),
}


@pytest.mark.parametrize("what", ANSWERS)
async def test_an_answer_need_not_be_json(rig: Rig, what: str) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await send(rig, form(FILE, ("model", b"m")))
    body, headers = ANSWERS[what]
    await (await node.next_call()).answer(body, headers=headers)
    reply = await client.reply()
    assert (reply.status, reply.body) == (200, body)
    assert reply.headers["content-type"] == headers["content-type"]


async def test_speech_is_passed_on_as_it_is_spoken(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node, path="/v1/audio/speech", input="hello", stream=True)
    await call.start_stream({"content-type": "audio/mpeg"})
    await call.chunk(b"\xff\xfbfirst")
    assert (await client.head()).headers["content-type"] == "audio/mpeg"
    assert await client.chunk() == b"\xff\xfbfirst"
    await call.chunk(b"second")
    await call.end()
    assert await client.chunk() == b"second"


async def test_a_transcript_may_be_a_stream_of_events(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await send(rig, form(FILE, ("model", b"m"), ("stream", b"true")))
    call = await node.next_call()
    await call.start_stream()
    await call.chunk(b'data: {"type":"transcript.text.delta"}\n\n')
    assert (await client.head()).headers["content-type"] == "text/event-stream"
    assert await client.chunk() == b'data: {"type":"transcript.text.delta"}\n\n'
    await call.end()


async def test_text_where_a_model_answers_is_garbage_as_before(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, retry={"attempts": 1})
    client, call = await rig.run(node)
    await call.answer(b"upstream connect error", headers={"content-type": "text/plain"})
    assert (await client.reply()).json["error"]["code"] == "node_failed"


def test_a_form_is_read_in_small_steps_whatever_is_in_it() -> None:
    mark = b"\r\n--" + BOUNDARY.encode()[:-1]  # as near to a boundary as can be
    body = form(("file", mark * 1_000_000, "f"), ("model", b"m"))
    reader = form_reader(TYPE.encode())
    assert reader is not None
    assert sum(1 for _ in reader.read_in_slices(body)) > len(body) // WINDOW
