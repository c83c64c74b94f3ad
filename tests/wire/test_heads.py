"""Heads that come again: known by their bytes, and by nothing less."""

from __future__ import annotations

import pytest

from forebay.wire.heads import HeadCache, RequestHead, make_request_head

HEAD = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nAccept: */*\r\n\r\n"


def learned(head: bytes = HEAD) -> HeadCache[RequestHead]:
    memory = HeadCache(make_request_head)
    memory.read(head[:-4].split(b"\r\n"))
    memory.learn(head)
    return memory


def with_length(length: bytes) -> bytes:
    return HEAD.replace(b"5", length)


@pytest.mark.parametrize(
    ("length", "body"),
    [
        (b"5", b"hello"),
        (b"0", b""),
        (b"2", b"{}"),
        (b"1000", 1000 * b"x"),
        (b"12", b"0123456789ab"),
    ],
)
def test_the_same_head_with_any_length_is_known(length: bytes, body: bytes) -> None:
    memory, head = learned(), with_length(length)
    assert memory.body_at(head + body) == len(head)
    assert memory.length == length
    assert memory.last.target == b"/v1/x"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        HEAD,
        HEAD + b"hell",
        HEAD + b"hello!",
        HEAD[:-1],
        HEAD[: HEAD.index(b"5")],
        HEAD[: HEAD.index(b"5") + 1],
        b"\r\n" + HEAD + b"hello",
        HEAD.replace(b"POST", b"PUT ") + b"hello",
        HEAD.replace(b"Host: a", b"Host: b") + b"hello",
        HEAD.replace(b"Accept: */*", b"Accept: *\\*") + b"hello",
        HEAD.replace(b"Accept", b"accept") + b"hello",
        HEAD.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n") + b"hello",
        with_length(b"") + b"hello",
        with_length(b"+5") + b"hello",
        with_length(b"-5") + b"hello",
        with_length(b"5 ") + b"hello",
        with_length(b" 5") + b"hello",
        with_length(b"5, 5") + b"hello",
        with_length(b"0x5") + b"hello",
        with_length(b"5\r\nContent-Length: 5") + b"hello",
        with_length(b"\xd9\xa5") + b"hello",
        with_length(b"00000000005") + b"hello",
        with_length(b"05") + b"hello",
        with_length(b"99999999999999999999") + b"hello",
    ],
)
def test_anything_else_is_not(data: bytes) -> None:
    assert learned().body_at(data) == 0


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nX-Content-Length: 5\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5 \r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\n",
    ],
)
def test_a_head_without_a_plain_length_is_never_known(head: bytes) -> None:
    assert learned(head).body_at(head + b"hello") == 0


def test_another_head_in_between_makes_the_first_unknown() -> None:
    memory = learned()
    memory.read(HEAD.replace(b"Host: a", b"Host: b")[:-4].split(b"\r\n"))
    assert memory.body_at(HEAD + b"hello") == 0
    assert memory.body_at(HEAD.replace(b"Host: a", b"Host: b") + b"hello") == 0


def test_the_length_is_found_in_a_line_of_its_own_only() -> None:
    head = b"POST /?content-length:9 HTTP/1.1\r\nA: content-length: 7\r\ncontent-length:3\r\n\r\n"
    assert learned(head).body_at(head + b"abc") == len(head)


def test_every_length_is_told_from_its_neighbours() -> None:
    memory = learned()
    for length in (*range(1200), *range(9_990, 10_010), *range(99_990, 100_010)):
        data = with_length(b"%d" % length) + length * b"x"
        assert memory.body_at(data) == len(data) - length
        assert memory.body_at(data + b"x") == 0
        assert memory.body_at(data[:-1]) == 0
