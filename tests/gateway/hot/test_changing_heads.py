"""Heads that differ from the one before: whatever changes, they say what they would say alone."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import hypothesis.strategies as st
import pytest

import forebay
from forebay.gateway.hot.callers import Caller
from forebay.wire.heads import HOP_BY_HOP, HeadCache

from ..conftest import OK

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..conftest import Rig

PEER = "127.0.0.1"
SOURCE = Path(forebay.__file__).parent
NAMES = sorted(
    {
        name
        for folder in ("wire", "gateway/hot")
        for file in (SOURCE / folder).glob("*.py")
        for text in re.findall(r'b" ?([a-z][a-z_ -]+)"', file.read_text())
        for name in text.split()
    }
    - {"content-length"}  # llhttp accepts one only, and `HeadCache` keeps it apart
)
"""Everything in the sources that could be the name of a header."""
VALUES = (
    b"1", b"2", b"high", b"chunked", b"gzip", b"close", b"keep-alive, x-one", b"localhost", b"ja",
    b"10.0.0.1", b"10.0.0.2", b"Bearer sk-one", b"sk-one", b"prm_1", b"requests", b"two words",
    b"text/plain", b"multipart/form-data; boundary=b", b"100-continue", b"websocket", b"",
)  # fmt: skip
FIRST = (b"POST /v1/chat/completions HTTP/1.1", b"host: localhost", b"x-api-key: sk-one")
LINE = st.builds(
    lambda name, value: b"%b: %b" % (name, value),
    st.sampled_from([*map(str.encode, NAMES), b"traceparent", b"X-One", b"x-one", b"x_two"]),
    st.sampled_from(VALUES),
)


@st.composite
def series(draw: st.DrawFn) -> list[list[bytes]]:
    """Return heads of which each differs from the one before in a few lines."""
    lines = [*FIRST, b"traceparent: 1", b"X-Request-Id: 1", b"x-one: 1"]
    lines += draw(st.lists(LINE, max_size=6))
    if draw(st.booleans()):
        lines.insert(draw(st.integers(1, len(lines))), b"Content-Length: 1")
    heads = [lines]
    for _ in range(draw(st.integers(1, 6))):
        lines = list(lines)
        for _ in range(draw(st.integers(0, 3))):
            at = draw(st.integers(1, len(lines) - 1))
            other = b"%b: %b" % (lines[at].partition(b":")[0], draw(st.sampled_from(VALUES)))
            if other.startswith(b"Content-Length"):
                other = b"Content-Length: 23"
            lines[at] = other if draw(st.integers(0, 3)) else draw(LINE)
        heads.append(lines)
    return heads


FIELDS = [
    name
    for name, field in inspect.getmembers(Caller, inspect.isdatadescriptor)
    if not name.startswith("__") and name != "form"  # which has no fields to compare
]


def said(head: Caller) -> dict[str, object]:
    fields = {name: getattr(head, name) for name in FIELDS}
    return fields | {"headers": [one for one in head.headers if one[0] != b"content-length"]}


async def read(rig: Rig) -> Callable[[list[list[bytes]]], int]:
    """Return what reads heads as of one connection, and says how many of them were amended."""
    keys = [{"name": "one", "key_env": "ONE"}]
    server = {"trusted_proxies": [PEER]}
    await rig.start(await rig.node(), keys=keys, server=server, environ={"ONE": "sk-one"})
    front: Any = rig.gateway._server.site

    def read(heads: list[list[bytes]]) -> int:
        cache: HeadCache[Caller] = HeadCache(front.read_head)
        amended = 0
        for lines in heads:
            head, is_known = cache.read(list(lines))
            amended += is_known
            if head.generation < 0:
                front._read_caller(head, PEER)
            alone = front.read_head(list(lines))
            front._read_caller(alone, PEER)
            assert said(head) == said(alone), (heads[0], lines)
        return amended

    return read


async def test_any_header_may_change_its_value(rig: Rig) -> None:
    heads = await read(rig)
    amended = {
        name: heads([[*FIRST, b"%b: %b" % (name.encode(), value)] for value in VALUES])
        for name in [*NAMES, "traceparent"]
    }
    assert amended["traceparent"] == len(VALUES) - 1
    of_the_connection = {name.decode() for name in HOP_BY_HOP} & amended.keys()
    assert not any(amended[name] for name in ("authorization", *of_the_connection))


async def test_a_head_says_the_same_whatever_came_before_it(rig: Rig) -> None:
    heads = await read(rig)

    @hypothesis.settings(max_examples=100)
    @hypothesis.given(series())
    def holds(made: list[list[bytes]]) -> None:
        heads(made)

    holds()
    assert len(FIELDS) > 30


@pytest.mark.parametrize("name", ["traceparent", "x-request-id"])
async def test_ids_that_change_with_every_request_reach_the_node(rig: Rig, name: str) -> None:
    node = await rig.node()
    await rig.start(node)
    client = await rig.client()
    for number in range(4):
        body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
        await client.post("/v1/chat/completions", body, {"x-first": "1", name: f"id-{number}"})
        call = await node.next_call()
        assert call.headers[name] == f"id-{number}"
        await call.answer(OK)
        assert (await client.reply()).status == 200
