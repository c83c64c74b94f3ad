"""What a node does with one request: whole answers, and everything that is none.

The request says which (`"script"` in its body): one act for each attempt, the last for all further
ones. `GOOD` leave a well-behaved client with a whole answer; the rest break HTTP, the promise to
answer, or both, and only nodes that are there to be bad perform them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from .tokens import new_token

if TYPE_CHECKING:
    from random import Random

LARGE_BYTES = 300_000
"""More than the gateway holds back, so that a broken answer is seen by the client."""


class Line(Protocol):
    """The connection that a node answers on."""

    def send(self, data: bytes) -> None:
        """Send; raises Gone when the other side has left."""
        ...

    def close(self) -> None: ...

    def reset(self) -> None: ...


class Asked:
    """One request, as a node sees it."""

    def __init__(self, token: str, *, stream: bool, rng: Random) -> None:
        self.token = token
        self.stream = stream
        self.rng = rng


Act: TypeAlias = Callable[[Line, Asked], Awaitable[None]]


def unary(token: str, pad: int = 40) -> bytes:
    """Return a body that says how long it is, so that a cut or mixed one is noticed."""
    body = f'{{"token":"{token}","choices":[],"size":SSSSSS,"pad":"{"y" * pad}","end":true}}'
    return body.replace("SSSSSS", f"{len(body):6d}").encode()


def events(token: str, count: int) -> list[bytes]:
    """Return a stream's events, numbered, and the last one."""
    numbered = [
        f'data: {{"token":"{token}","choices":[],"number":{number},"of":{count}}}\n\n'.encode()
        for number in range(count)
    ]
    return [*numbered, b"data: [DONE]\n\n"]


def head(status: str = "200 OK", kind: str = "application/json", **more: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def sized(body: bytes, status: str = "200 OK", **more: str) -> bytes:
    return head(status, content_length=str(len(body)), **more) + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole_stream(token: str, count: int) -> list[bytes]:
    """Return a stream in the pieces that it is sent in."""
    start = head(kind="text/event-stream", transfer_encoding="chunked")
    return [start, *map(chunk, events(token, count)), b"0\r\n\r\n"]


def answer(asked: Asked, pad: int = 40) -> bytes:
    """Return what was asked for."""
    if asked.stream:
        return b"".join(whole_stream(asked.token, asked.rng.choice((1, 3, 20))))
    return sized(unary(asked.token, pad))


def said(asked: Asked, status: str, **more: str) -> bytes:
    """Return an error in the node's own words."""
    error = {"message": "the node said so", "code": "node_said", "token": asked.token}
    return sized(json.dumps({"error": error}).encode(), status, **more)


# -- good


async def whole(line: Line, asked: Asked) -> None:
    line.send(answer(asked))


async def late(line: Line, asked: Asked) -> None:
    await asyncio.sleep(asked.rng.uniform(0.0, 0.03))
    line.send(answer(asked))


async def very_late(line: Line, asked: Asked) -> None:
    await asyncio.sleep(asked.rng.uniform(0.1, 0.5))
    line.send(answer(asked))


async def split(line: Line, asked: Asked) -> None:
    data = answer(asked)
    places = sorted(asked.rng.randrange(len(data)) for _ in range(asked.rng.randint(1, 6)))
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        line.send(data[start:end])
        await asyncio.sleep(asked.rng.choice((0.0, 0.0, 0.002)))


async def byte_by_byte(line: Line, asked: Asked) -> None:
    data = answer(asked)
    for at in range(len(data)):
        line.send(data[at : at + 1])
        await asyncio.sleep(0.0)


async def in_chunks(line: Line, asked: Asked) -> None:
    """Answer in chunks although it is no stream."""
    if asked.stream:
        line.send(answer(asked))
        return
    body = unary(asked.token, asked.rng.choice((0, 5000)))
    cut = asked.rng.randint(1, len(body) - 1)
    line.send(head(transfer_encoding="chunked") + chunk(body[:cut]))
    await asyncio.sleep(0.0)
    line.send(chunk(body[cut:]) + b"0\r\n\r\n")


async def large(line: Line, asked: Asked) -> None:
    line.send(answer(asked, LARGE_BYTES))


async def slow_stream(line: Line, asked: Asked) -> None:
    for piece in whole_stream(asked.token, 8):
        line.send(piece)
        await asyncio.sleep(asked.rng.uniform(0.0, 0.01))


async def interim(line: Line, asked: Asked) -> None:
    line.send(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + answer(asked))


GOOD: dict[str, Act] = {
    act.__name__: act
    for act in (whole, late, very_late, split, byte_by_byte, in_chunks, large, slow_stream, interim)
}

# -- answers that say no


def _saying(name: str, status: str, **more: str) -> tuple[str, Act]:
    async def act(line: Line, asked: Asked) -> None:
        line.send(said(asked, status, **more))

    return name, act


REFUSING: dict[str, Act] = dict(
    (
        _saying("busy", "429 Too Many Requests", retry_after="1"),
        _saying("loading", "503 Service Unavailable"),
        _saying("error", "500 Internal Server Error"),
        _saying("not_built", "501 Not Implemented"),
        _saying("gateway_error", "502 Bad Gateway"),
        _saying("missing", "404 Not Found"),
        _saying("bad_request", "400 Bad Request"),
        _saying("unprocessable", "422 Unprocessable Content"),
        _saying("forbidden", "403 Forbidden"),
        _saying("redirect", "302 Found", location="http://127.0.0.1:9/"),
    )
)

# -- breaking the connection


async def reset_before(line: Line, asked: Asked) -> None:
    await asyncio.sleep(asked.rng.choice((0.0, 0.005)))
    line.reset()


async def close_before(line: Line, asked: Asked) -> None:
    line.close()


async def reset_after_head(line: Line, asked: Asked) -> None:
    data = answer(asked)
    line.send(data[: data.index(b"\r\n\r\n") + 4])
    await asyncio.sleep(asked.rng.choice((0.0, 0.005)))
    line.reset()


async def reset_in_head(line: Line, asked: Asked) -> None:
    line.send(answer(asked)[: asked.rng.randint(1, 30)])
    await asyncio.sleep(asked.rng.choice((0.0, 0.005)))
    line.reset()


async def reset_in_body(line: Line, asked: Asked) -> None:
    data = answer(asked, asked.rng.choice((40, LARGE_BYTES)))
    start = data.index(b"\r\n\r\n") + 4
    line.send(data[: asked.rng.randint(start, len(data) - 1)])
    await asyncio.sleep(asked.rng.choice((0.0, 0.02)))
    line.reset()


async def truncated(line: Line, asked: Asked) -> None:
    data = answer(asked, asked.rng.choice((40, LARGE_BYTES)))
    line.send(data[: -asked.rng.randint(1, 30)])
    line.close()


async def reset_after(line: Line, asked: Asked) -> None:
    line.send(answer(asked))
    await asyncio.sleep(asked.rng.choice((0.0, 0.001)))
    line.reset()


async def close_after(line: Line, asked: Asked) -> None:
    """Promise to keep the connection, and close it."""
    line.send(answer(asked))
    await asyncio.sleep(asked.rng.choice((0.0, 0.001, 0.01)))
    line.close()


async def closing(line: Line, asked: Asked) -> None:
    """Say where the answer ends by closing."""
    kind = "text/event-stream" if asked.stream else "application/json"
    body = b"".join(events(asked.token, 3)) if asked.stream else unary(asked.token)
    line.send(head(kind=kind, connection="close") + body)
    line.close()


BREAKING: dict[str, Act] = {
    act.__name__: act
    for act in (
        reset_before, close_before, reset_in_head, reset_after_head, reset_in_body, truncated,
        reset_after, close_after, closing,
    )
}  # fmt: skip

# -- breaking HTTP


def unasked(asked: Asked) -> bytes:
    """Return an answer to a question that nobody has asked."""
    return sized(unary(new_token(asked.rng, "e")))


async def twice(line: Line, asked: Asked) -> None:
    line.send(answer(asked) + unasked(asked))


async def twice_later(line: Line, asked: Asked) -> None:
    """Answer once more when the connection may carry another request already.

    HTTP/1.1 cannot rule out that this is taken for the answer to that one, so it holds nothing
    that could pass for one: it must be noticed, and cost no more than an attempt.
    """
    line.send(answer(asked))
    await asyncio.sleep(asked.rng.choice((0.0, 0.0, 0.001, 0.003)))
    line.send(sized(b"hello again"))


async def too_short(line: Line, asked: Asked) -> None:
    """Say less than there is: the rest looks like the next answer."""
    body = unary(asked.token)
    line.send(head(content_length=str(len(body))) + body + unasked(asked))


async def says_more(line: Line, asked: Asked) -> None:
    """Send more than was said."""
    line.send(sized(unary(asked.token)) + b"and another thing")


async def garbage(line: Line, asked: Asked) -> None:
    line.send(asked.rng.randbytes(asked.rng.randint(1, 2000)))
    await asyncio.sleep(asked.rng.choice((0.0, 0.05)))
    line.close()


async def odd_status(line: Line, asked: Asked) -> None:
    status = asked.rng.choice(("000 Zero", "999 Many", "99 Short", "600 Over", "-200 OK", "200"))
    line.send(sized(unary(asked.token), status))


async def odd_version(line: Line, asked: Asked) -> None:
    version = asked.rng.choice((b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"ICY"))
    line.send(answer(asked).replace(b"HTTP/1.1", version, 1))
    line.close()


async def huge_head(line: Line, asked: Asked) -> None:
    line.send(sized(unary(asked.token), x_padding="z" * asked.rng.choice((60_000, 300_000))))


async def many_headers(line: Line, asked: Asked) -> None:
    more = {f"x_{number}": "1" for number in range(asked.rng.choice((100, 400)))}
    line.send(sized(unary(asked.token), **more))


async def unclear_length(line: Line, asked: Asked) -> None:
    body = unary(asked.token)
    length = f"content-length: {len(body)}\r\n".encode()
    second = asked.rng.choice(
        (b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n", b"content-length: -1\r\n")
    )
    line.send(b"HTTP/1.1 200 OK\r\n" + length + second + b"\r\n" + body)


async def odd_chunks(line: Line, asked: Asked) -> None:
    bad = asked.rng.choice((b"zz\r\nx\r\n", b"-1\r\n", b"ffffffffffffffffff\r\n", b"5\r\nabc\r\n"))
    line.send(head(transfer_encoding="chunked") + chunk(b'{"token":') + bad)


async def nothing(line: Line, asked: Asked) -> None:
    """Answer with an empty body."""
    line.send(sized(b"", asked.rng.choice(("200 OK", "204 No Content", "304 Not Modified"))))


async def not_json(line: Line, asked: Asked) -> None:
    line.send(sized(b"<html>a proxy says hello</html>"))


async def upgraded(line: Line, asked: Asked) -> None:
    line.send(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n")


async def silent(line: Line, asked: Asked) -> None:
    """Never answer; the gateway has to give up."""


async def falls_silent(line: Line, asked: Asked) -> None:
    data = answer(asked, LARGE_BYTES)
    line.send(data[: len(data) * 2 // 3])


LYING: dict[str, Act] = {
    act.__name__: act
    for act in (
        twice, twice_later, too_short, says_more, garbage, odd_status, odd_version, huge_head,
        many_headers, unclear_length, odd_chunks, nothing, not_json, upgraded, silent, falls_silent,
    )
}  # fmt: skip

ACTS: dict[str, Act] = {**GOOD, **REFUSING, **BREAKING, **LYING}
