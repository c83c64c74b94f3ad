"""Rows 57-60: bodies and values that are too large, too deep, malformed or hostile."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from .conftest import CHAT, FIRST, NODE_KEY, PROMPT, bearer, key

if TYPE_CHECKING:
    from forebay.testing import Reply

    from .conftest import FaultRig

PAD = b'"pad": "%b", ' % (b"x" * 600_000)  # what is larger is read in slices, another way


def error(reply: Reply) -> tuple[int, str, str | None]:
    """Return status, code and field of an error."""
    said = reply.json["error"]
    return reply.status, said["code"], said.get("param")


async def test_fault_57_a_body_of_100_mb_is_refused_by_its_length_alone(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    await client.send(b"POST %b HTTP/1.1\r\nhost: localhost\r\n" % CHAT.encode())
    await client.send(b"content-length: 100000000\r\nexpect: 100-continue\r\n\r\n")
    reply = await client.head()
    assert reply.status == 413  # and no 100: nothing of it is wanted
    assert b"body_too_large" in (await client.chunk() or b"")
    await client.closed()
    assert node.calls == []


async def test_fault_57_a_body_in_chunks_is_refused_once_it_is_too_large(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node, server={"body_max_bytes": 1_000_000})
    client = await rig.client()
    await client.send(b"POST %b HTTP/1.1\r\nhost: localhost\r\n" % CHAT.encode())
    await client.send(b"transfer-encoding: chunked\r\n\r\n")
    with suppress(ConnectionResetError):
        for _ in range(200):
            await client.send(b"10000\r\n%b\r\n" % (b" " * 65_536))
    assert error(await client.reply())[:2] == (413, "body_too_large")
    assert node.calls == []


def deep(count: int, bracket: bytes = b"[]") -> bytes:
    return b'{"model":"m","x":%b%b}' % (bracket[:1] * count, bracket[1:] * count)


def mixed(count: int) -> bytes:
    return b'{"model":"m","x":%b1%b}' % (b'{"a":[' * count, b"]}" * count)


MALFORMED: dict[str, tuple[bytes, str]] = {
    "100,000 deep": (deep(100_000), "body"),
    "600,000 deep": (deep(600_000), "body"),
    "50,000 deep of both kinds": (mixed(50_000), "body"),
    "250,000 deep of both kinds": (mixed(250_000), "body"),
    "100,000 deep and never closed": (b'{"model":"m","x":' + b"[" * 100_000, "body"),
    "600,000 deep and never closed": (b'{"model":"m","x":' + b"[" * 600_000, "body"),
    "NaN": (b'{"model":"m","temperature":NaN}', "body"),
    "NaN in a large one": (b'{%b"model":"m","temperature":NaN}' % PAD, "body"),
    "Infinity": (b'{"model":"m","temperature":-Infinity}', "body"),
    "model twice": (b'{"model":"m","model":"n"}', "model"),
    "model twice, once escaped": (b'{"model":"m","mod\\u0065l":"n"}', "model"),
    "model twice, once all escaped": (
        b'{"\\u006d\\u006f\\u0064\\u0065\\u006c":"m","model":"n"}', "model"),
    "model twice with text between": (b'{"model":"m","x":{"model":1},"model":"n"}', "model"),
    "stream twice": (b'{"model":"m","stream":false,"stream":true}', "stream"),
    "user twice": (b'{"user":"a","model":"m","us\\u0065r":"b"}', "user"),
    "null, then again": (b'{"model":"m","user":null,"user":"b"}', "user"),
    "model twice in a large one": (b'{"model":"m",%b"model":"n"}' % PAD, "model"),
    "model twice in a large one, escaped": (b'{"model":"m",%b"mod\\u0065l":"n"}' % PAD, "model"),
    "other capitals": (b'{"model":"m","MODEL":"n"}', "model"),
    "other capitals alone": (b'{"model":"m","Stream":true}', "stream"),
    "other capitals, escaped": (b'{"model":"m","\\u004dodel":"n"}', "model"),
    "a long s": ('{"model":"m","\u017ftream":true}'.encode(), "stream"),
    "other capitals in a large one": (b'{"model":"m",%b"MODEL":"n"}' % PAD, "model"),
    "metadata's user twice": (
        b'{"model":"m","metadata":{"user_id":"a","user\\u005fid":"b"}}', "metadata.user_id"),
    "metadata's user in other capitals, in a large one": (
        b'{"model":"m",%b"metadata":{"User_Id":"a"}}' % PAD, "metadata.user_id"),
    "metadata twice": (b'{"model":"m","metadata":{},"metadata":{"user_id":"a"}}', "metadata"),
    "bad UTF-8 in what we skip": (b'{"model":"m","x":"\xff\xfe"}', "body"),
    "bad UTF-8 in a name": (b'{"model":"m","\xc3\x28":1}', "body"),
    "overlong UTF-8": (b'{"model":"m","x":"\xc0\xaf"}', "body"),
    "UTF-8 of a surrogate": (b'{"model":"m","x":"\xed\xa0\x80"}', "body"),
    "bad UTF-8 in a large one": (b'{%b"model":"m","x":"\xff"}' % PAD, "body"),
    "UTF-16": ('{"model":"m"}'.encode("utf-16"), "body"),
    "a lone surrogate as the model": (b'{"model":"\\ud800"}', "body"),
    "a lone surrogate in what we skip": (b'{"model":"m","x":"\\ud800"}', "body"),
    "no model": (b"{}", "model"),
    "no model in a large one": (b'{%b"x":1}' % PAD, "model"),
    "an empty model": (b'{"model":""}', "model"),
    "a model that is a number": (b'{"model":7}', "model"),
    "a model of 10,000 letters": (b'{"model":"%b"}' % (b"m" * 10_000), "model"),
    "a stream that is a word": (b'{"model":"m","stream":"yes"}', "stream"),
    "max_tokens that is a word": (b'{"model":"m","max_tokens":"many"}', "max_tokens"),
    "a list": (b'[{"model":"m"}]', "body"),
    "a number": (b"7", "body"),
    "nothing": (b"", "body"),
    "blanks": (b" " * 600_000, "body"),
    "half an object": (b'{"model":"m"', "body"),
    "half a large one": (b'{%b"model":"m"' % PAD, "body"),
    "two objects": (b'{"model":"m"}{"model":"n"}', "body"),
    "two objects, large": (b'{%b"model":"m"}{"model":"n"}' % PAD, "body"),
    "a comma too many": (b'{"model":"m",}', "body"),
    "a NUL": (b'{"model":"m"}\0', "body"),
    "single quotes": (b"{'model':'m'}", "body"),
}  # fmt: skip


@pytest.mark.parametrize("what", MALFORMED)
async def test_fault_57_a_malformed_body_is_400_and_names_the_field(
    rig: FaultRig, what: str
) -> None:
    node = await rig.node(models=["m", "n"])
    await rig.start(node)
    body, field = MALFORMED[what]
    client = await rig.client()
    await client.post(CHAT, body)
    assert error(await client.reply()) == (400, "invalid_request", field)
    await client.post(CHAT, {"model": "m"})  # and the connection is good for more
    await (await node.next_call()).answer({})
    assert (await client.reply()).status == 200
    assert len(node.calls) == 1


CALL = b'{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"model":"m"},"method":"x"}'
TWICE = {
    "/jobs": (b'{"type":"chat","params":{"model":"m"},"type":"chat"}', "type"),
    "/jobs?large": (b'{"type":"chat","params":{},"params":{"x":"%b"}}' % PAD[8:-3], "params"),
    "/jobs?inside": (
        b'{"type":"chat","params":{"model":"m","metadata":{"user_id":"","user_id":""}}}',
        "params.metadata.user_id",
    ),
    "/session": (b'{"model":"m","mod\\u0065l":"n"}', "model"),
    "/v1/batches": (
        b'{"endpoint":"x","input_file_id":"a","completion_window":"24h","endpoint":"y"}',
        "endpoint",
    ),
    "/admin/nodes": (b'{"name":"n2","url":"http://127.0.0.1:1","url":"http://x"}', "url"),
    "/admin/keys": (b'{"name":"new","admin":true,"name":"other"}', "name"),
}


@pytest.mark.parametrize("path", TWICE)
async def test_fault_57_a_member_that_is_given_twice_is_400_in_bodies_of_our_own(
    rig: FaultRig, path: str
) -> None:
    await rig.start(await rig.node())
    body, field = TWICE[path]
    assert error(await rig.get(path, method="POST", body=body)) == (400, "invalid_request", field)
    assert len((await rig.get("/admin/nodes")).json["data"]) == 1
    assert (await rig.get("/jobs")).json["data"] == []


async def test_fault_57_a_call_with_a_member_given_twice_is_400_in_its_own_dialect(
    rig: FaultRig,
) -> None:
    await rig.start(await rig.node())
    reply = await rig.get("/acp", method="POST", body=CALL)
    assert (reply.status, reply.json["error"]["code"]) == (400, -32600)
    assert "`method`" in reply.json["error"]["message"]


DIGITS = b"9" * 1_000_000
HARMLESS = {
    "1e6 digits in what we skip": b'{"model":"m","x":[%b]}' % DIGITS,
    "4e5 digits in what we skip": b'{"model":"m","x":[%b]}' % DIGITS[:400_000],
    "a huge exponent": b'{"model":"m","max_tokens":1e308,"x":1e999999}',
    "names twice that we do not read": b'{"model":"m","x":1,"x":2,"y":{"model":1,"model":2}}',
    "names twice in metadata": b'{"model":"m","metadata":{"user_id":"a","x":1,"x":2}}',
    "metadata that is a text": b'{"model":"m","metadata":"user_id"}',
    "escaped names once": b'{"mod\\u0065l":"m","\\u0075ser":"u"}',
    "names with capitals further down": (
        b'{"model":"m","tools":[{"properties":{"Model":{},"MODEL":{},"model":{}}}]}'
    ),
    "400 deep": deep(400),
    "400 digits as a limit": b'{"model":"m","max_tokens":%b}' % DIGITS[:400],
    "400 digits below zero": b'{"model":"m","max_tokens":-%b}' % DIGITS[:400],
    "NUL and newlines in the user": b'{"model":"m","user":"a\\u0000\\r\\nx-evil: 1"}',
    "a user of a million letters": b'{"model":"m","user":"%b"}' % (b"u" * 1_000_000),
}


@pytest.mark.parametrize("what", HARMLESS)
async def test_fault_57_an_odd_body_that_is_json_passes_byte_for_byte(
    rig: FaultRig, what: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    await client.post(CHAT, HARMLESS[what])
    call = await node.next_call()
    assert call.body == HARMLESS[what]
    assert "x-evil" not in call.headers
    await call.answer({})
    assert (await client.reply()).status == 200


async def test_a_byte_order_mark_is_cut_off_before_a_body_is_passed_on(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node, models={"aliases": {"nick": "m"}})
    for pad in (b"", PAD):
        for model in (b"m", b"nick"):
            client = await rig.client()
            await client.post(CHAT, b'\xef\xbb\xbf{%b"model": "%b" }' % (pad, model))
            call = await node.next_call()
            assert call.body == b'{%b"model": "m" }' % pad
            await call.answer({})
            assert (await client.reply()).status == 200


@pytest.mark.parametrize("digits", [400_000, 1_000_000])
@pytest.mark.parametrize("sign", [b"", b"-"])
async def test_fault_57_a_limit_of_a_million_digits_is_refused(
    rig: FaultRig, digits: int, sign: bytes
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    await client.post(CHAT, b'{"model":"m","max_tokens":%b%b}' % (sign, DIGITS[:digits]))
    reply = await client.reply()
    assert error(reply)[:2] == (400, "invalid_request")
    assert len(reply.body) < 1000
    assert node.calls == []


EVIL = ["a\r\nX-Evil: 1", "a\nb", "a\0b", "\x1b[31m", "a\u2028b", "a\x85b", "data: x\n\ndata: y"]


@pytest.mark.parametrize("text", EVIL)
async def test_fault_58_control_characters_reach_no_header_no_log_and_no_event(
    rig: FaultRig, text: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask(text)  # as a model
    reply = await client.reply()
    assert error(reply) == (404, "model_not_found", "model")
    assert "x-evil" not in reply.headers
    assert not set(reply.body) & set(range(32))  # encoded, if it is there at all
    running = await rig.ask(stream=True, user=text)
    call = await node.next_call()
    assert "x-evil" not in call.headers
    await rig.ask(stream=True, user=text)
    waiting = await rig.ask(stream=True, user=text)
    await rig.wait_until("waiting", 2)
    rig.clock.advance(15.0)
    assert "x-evil" not in (await waiting.head()).headers
    assert await waiting.chunk() == b": queued position=2\n\n"
    await call.start_stream()
    await call.chunk(b"data: 1\n\n")
    await call.end()
    assert (await running.reply()).body == b"data: 1\n\n"
    rig.clock.advance(1.0)
    log = rig.access_log.getvalue().decode()
    assert text not in log
    assert "Evil" not in log


ODD_IDS = ["a\tb", "x" * 129, "x" * 60_000, "<script>", "a b", "\xfc", "", "a;b", "{id}"]


@pytest.mark.parametrize("odd", ODD_IDS)
async def test_fault_58_an_odd_request_id_is_replaced_and_echoed_nowhere(
    rig: FaultRig, odd: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask(headers={"x-request-id": odd})
    call = await node.next_call()
    await call.answer({})
    given = (await client.reply()).headers["x-request-id"]
    assert given != odd
    assert given == call.headers["x-request-id"]
    assert given.isalnum()
    assert len(given) <= 128


PRIORITIES = ["high ", " HIGH", "1e99", "null", "[1]", "-1", "9" * 10_000, "NaN", "\xff", "", "{}"]


@pytest.mark.parametrize("name", ["x-forebay-priority", "x-nexus-priority"])
@pytest.mark.parametrize("value", PRIORITIES)
async def test_fault_59_an_odd_priority_in_a_header_is_high_or_normal_and_never_an_error(
    rig: FaultRig, value: str, name: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.ask()
    await node.next_call()
    await rig.ask(headers={name: value})
    await rig.wait_until("waiting", 1)
    expected = "high" if value.strip().lower() == "high" else "normal"
    assert (await rig.queue())["by_priority"][expected] == 1


@pytest.mark.parametrize("value", ["high", 1e99, None, [1], {}, True, "urgent"])
async def test_fault_59_an_odd_priority_in_a_body_is_passed_on_or_400(
    rig: FaultRig, value: Any
) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.ask(priority=value)  # not a field of ours
    call = await node.next_call()
    assert call.json["priority"] == value
    await call.answer({})
    assert (await client.reply()).status == 200
    client = await rig.ask(service_tier=value)  # one of ours
    if value is None or isinstance(value, str):
        await (await node.next_call()).answer({})
        assert (await client.reply()).status == 200
    else:
        assert error(await client.reply()) == (400, "invalid_request", "service_tier")


async def test_fault_60_no_field_of_a_body_says_where_a_request_goes(rig: FaultRig) -> None:
    node, elsewhere = await rig.node(), await rig.node()
    listed = [{"name": "n1", "url": node.url, "api_key_env": "NODE_KEY"}]
    await rig.start(keys=[key("first")], nodes=listed)
    fields = ("api_base", "base_url", "api_key_base", "url", "endpoint", "host", "proxy")
    places = dict.fromkeys(fields, elsewhere.url)
    headers = bearer(FIRST, **{"x-api-base": elsewhere.url, "x-forwarded-host": "169.254.169.254"})
    client = await rig.ask(**places, api_key="sk-mine", headers=headers)
    call = await node.next_call()
    assert call.json["api_base"] == elsewhere.url  # untouched, and without effect
    assert call.headers["authorization"] == f"Bearer {NODE_KEY}"
    assert call.headers["host"] == f"127.0.0.1:{node.port}"
    assert FIRST.encode() not in call.raw_head
    await call.answer({})
    assert (await client.reply()).status == 200
    assert elsewhere.accepted == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_fault_60_a_redirect_is_not_followed_and_no_key_goes_along(
    rig: FaultRig, status: int
) -> None:
    node, elsewhere = await rig.node(), await rig.node()
    listed = [{"name": "n1", "url": node.url, "api_key_env": "NODE_KEY"}]
    await rig.start(nodes=listed)
    for location in (elsewhere.url + CHAT, "http://169.254.169.254/latest/meta-data/"):
        client = await rig.ask()
        await (await node.next_call()).answer({}, status, {"location": location})
        reply = await client.reply()
        assert error(reply)[:2] == (502, "node_failed")
        assert "location" not in reply.headers
        assert NODE_KEY.encode() not in reply.raw_head + reply.body
        assert PROMPT.encode() not in reply.body
    assert elsewhere.accepted == 0
    assert len(node.calls) == 2
