"""Bodies of routes that are not hot: however they are made, others go on meanwhile."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import pytest
from msgspec import Raw, Struct

from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.http.json_body import VALUES_MAX, decode_body, in_turns
from forebay.gateway.routes.jobs import _with_model
from forebay.relay.fields import INLINE_BYTES
from forebay.relay.json_text import SLICE


class Work(Struct):
    """A body with a large part."""

    name: str
    params: Raw = Raw(b"{}")


HOSTILE = {
    "lists": b"[0%b]" % (b",[]" * 300_000),
    "lists and texts that look like ends": b"[0%b]" % (b',[],"],"' * 20_000),
    "depth": b"[0%b]" % ((b"," + b"[" * 400 + b"]" * 400) * 500),
    "numbers": b"[0%b]" % (b",1" * 400_000),
    "a text": b'"%b"' % (b"\\n" * 300_000),
    "backslashes": b'"%b"' % (b"\\" * 4_000_000),
}


async def turns_during(work: asyncio.Task[Any]) -> int:
    """Return how often others had a turn before a task was done."""
    turns = 0
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_large_part_is_read_in_many_turns_and_kept_as_it_is(what: str) -> None:
    params = HOSTILE[what]
    body = b'{"name": "n", "params": %b }' % params
    work = asyncio.create_task(decode_body(body, Work, as_it_is="params"))
    turns = await turns_during(work)
    assert bytes(work.result().params) == params
    assert turns >= len(body) // SLICE


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"name": 1, "params": %b}', "name"),
        (b'{"params": %b}', "name"),
        (b'{"name": "n", "params": %b', "body"),
        (b'{"name": "\xff", "params": %b}', "body"),
    ],
)
@pytest.mark.parametrize("size", [10, INLINE_BYTES])
async def test_what_is_wrong_is_named_however_large_a_body_is(
    body: bytes, param: str, size: int
) -> None:
    with pytest.raises(HttpError) as refused:
        await decode_body(body % (b'"%b"' % (b"x" * size)), Work, as_it_is="params")
    assert refused.value.problem.param == param


async def test_a_body_that_is_slow_to_make_into_objects_is_refused() -> None:
    text = rb"commas, [brackets] and \"quotes\" in a text are text,\\" * INLINE_BYTES
    for value in (b"0", b'""', b"[]", b"{}", b"5e-324", b'{"a":0}'):
        body = b'{"text": "' + text[: 57 * 9000] + b'", "x": [0%b]}'
        fits = VALUES_MAX // (1 + value.count(b"[") + value.count(b"{")) - 4
        decoded = await decode_body(body % ((b"," + value) * fits), dict[str, Any])
        assert len(decoded["x"]) == fits + 1
        with pytest.raises(HttpError) as refused:
            await decode_body(body % ((b"," + value) * VALUES_MAX), dict[str, Any])
        assert "values" in refused.value.problem.message


async def test_numbers_that_are_slow_to_read_are_read_like_others() -> None:
    body = b'{"x": [5e-324, 1.5, 1e400, 7]}'
    assert await decode_body(body, dict[str, Any]) == {"x": [5e-324, 1.5, inf, 7]}


async def test_only_what_is_kept_as_it_is_may_be_large() -> None:
    body = b'{"type": "t", "params": {}, "zz": "%b"}' % (b"x" * INLINE_BYTES)
    with pytest.raises(HttpError, match="invalid_request"):
        await decode_body(body, Work, as_it_is="params")


@pytest.mark.parametrize(
    ("params", "after"),
    [
        (b"{}", b'{"model":"m"}'),
        (b' {"a": 1}', b' {"model":"m","a": 1}'),
        (b'{"a": 1, "model": "n"}', b'{"a": 1, "model": "n"}'),
        (b'{"a": 1, "mod\\u0065l": "n"}', b'{"a": 1, "mod\\u0065l": "n"}'),
        (b'{"a": {"model": 1}}', b'{"model":"m","a": {"model": 1}}'),
    ],
)
async def test_a_model_beside_the_params_is_put_in_where_they_name_none(
    params: bytes, after: bytes
) -> None:
    assert await in_turns(_with_model(params, "m")) == after
    assert await in_turns(_with_model(params, None)) == params
