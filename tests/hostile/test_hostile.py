"""Thousands of requests of clients and nodes that do anything to HTTP; then nothing is left.

Seeds are fixed, so that the schedule is; `make hostile` plays others. The control shows that the
oracle notices what it is there for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tools.compile import CompiledPackage, has_compiler

from .answers import Answer, Malformed, take_answer
from .oracle import Ask, Oracle
from .run import Run, leftovers
from .stand import Stand

if TYPE_CHECKING:
    from pathlib import Path

REQUESTS = 4_500
"""Of each seed; with the crowd at the end of each, 10,000 at once and 20,000 with the long ones."""
LONG = pytest.mark.long


async def play(stand: Stand, seed: str, requests: int) -> None:
    """Play a seed against a process, and stop it."""
    try:
        report = await Run(stand, seed, requests).play()
        assert not report.failures, f"\n{report}"
    finally:
        status = await stand.stop()
    assert status == 0, "".join(stand.program.said[-20:])


@pytest.mark.parametrize("seed", ["one", pytest.param("two", marks=LONG)])
async def test_whatever_clients_and_nodes_do_nothing_is_left(tmp_path: Path, seed: str) -> None:
    await play(await Stand.gateway(tmp_path), seed, REQUESTS)


@pytest.mark.skipif(not has_compiler(), reason="there is no C compiler")
@pytest.mark.parametrize("seed", [pytest.param("one", marks=LONG), "two"])
async def test_whatever_they_do_to_the_compiled_build_nothing_is_left(
    tmp_path: Path, seed: str
) -> None:
    compiled = CompiledPackage(optimised=False).make(if_changed=True)
    await play(await Stand.gateway(tmp_path, compiled), seed, REQUESTS)


async def test_whatever_they_do_to_a_guard_nothing_is_left(tmp_path: Path) -> None:
    await play(await Stand.guard(tmp_path), "guard", 2_000)


# -- the control: what the oracle must notice

OWN, OTHER = "n-000000000001", "n-000000000002"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


def verdict(data: bytes, ask: Ask | None = None) -> list[str]:
    """Return what an oracle says of an answer."""
    oracle = Oracle()
    answer = take_answer(bytearray(data), ended=True)
    oracle.judge("control", ask or Ask(OWN, b""), answer)
    return oracle.failures


def told(token: str) -> bytes:
    body = b'{"token":"%b","size":    XX,"end":true}' % token.encode()
    body = body.replace(b"XX", b"%2d" % len(body))
    return HEAD % len(body) + body


def test_an_answer_of_ones_own_is_fine() -> None:
    assert verdict(told(OWN)) == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (told(OTHER), "holds"),
        (told(OWN)[:-3], "ended cut"),
        (b"", "ended none"),
        (HEAD % 2 + b"{}", "not the node's"),
        (b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", "got 500"),
        (b'HTTP/1.1 500 No\r\ncontent-length: 12\r\n\r\n{"error":{}}', "without a code"),
    ],
    ids=["another's", "cut", "nothing", "empty", "silent-error", "unclear-error"],
)
def test_an_answer_that_is_none_is_noticed(data: bytes, words: str) -> None:
    (failure, *_) = verdict(data)
    assert words in failure


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 999 Odd\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b'{"an": "answer"}\r\n\r\n',
    ],
)
def test_what_is_not_http_is_noticed(data: bytes) -> None:
    with pytest.raises(Malformed):
        take_answer(bytearray(data), ended=True)


def test_an_answer_is_taken_whole_and_the_next_is_left() -> None:
    buffer = bytearray(told(OWN) + told(OTHER))
    first, second = (take_answer(buffer, ended=False) for _ in range(2))
    assert isinstance(first, Answer)
    assert isinstance(second, Answer)
    assert (OWN.encode() in first.body, OTHER.encode() in second.body) == (True, True)
    assert not buffer


def test_what_an_idle_gateway_holds_is_noticed() -> None:
    idle = {"leases": 0.0, "tasks": 3.0, "connections client": 1.0, "node_in_flight good0": 0.0}
    assert leftovers(idle, idle) == []
    held = {"leases": 1.0, "tasks": 4.0, "connections client": 2.0, "node_in_flight good0": 1.0}
    assert len(leftovers(idle, held)) == 4
