"""What clients do that is hardly HTTP: each must get a clear refusal, or what it asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .oracle import CLEAR, GONE, REFUSED
from .talk import CHAT
from .tokens import new_token

if TYPE_CHECKING:
    from .plays import Play
    from .talk import Talk

HOST = "host: 127.0.0.1"
BODY_BYTES_MAX = 1_000_000
"""`server.body_max_bytes` of the gateway under test."""


def lines(*head: str) -> bytes:
    return "\r\n".join(head).encode() + b"\r\n\r\n"


async def answered(talk: Talk) -> None:
    await talk.hear_all()
    await talk.hush(0.02)
    talk.close()


async def upgrades(talk: Talk) -> None:
    """Offer an upgrade with a plain request, as curl and Java do: it is answered by HTTP/1.1."""
    offer = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABk")
    await talk.send(talk.ask(headers=offer))
    await answered(talk)


async def smuggles(talk: Talk) -> None:
    """Hide a request in the body of one whose body might be skipped."""
    rng = talk.rng
    hidden = talk.body(new_token(rng, "x"), "whole", "good", stream=False)
    inner = lines(f"POST {CHAT} HTTP/1.1", HOST, f"content-length: {len(hidden)}") + hidden
    upgrade = rng.choice(("upgrade: h2c", "upgrade: websocket", "upgrade: TLS/1.0"))
    first = rng.choice(
        (
            (f"POST {CHAT} HTTP/1.1", "connection: upgrade", upgrade),
            ("CONNECT 127.0.0.1:80 HTTP/1.1",),
            (f"CONNECT {CHAT} HTTP/1.1", "connection: upgrade", upgrade),
            ("GET /health HTTP/1.1", "connection: upgrade", upgrade),
            ("POST /nothing HTTP/1.1", "connection: upgrade", upgrade),
            (f"PUT {CHAT} HTTP/1.1", "connection: upgrade, keep-alive", upgrade),
        )
    )
    token = new_token(rng)
    chunked = rng.random() < 0.3
    framing = "transfer-encoding: chunked" if chunked else f"content-length: {len(inner)}"
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner) if chunked else inner
    head = lines(first[0], HOST, f"x-request-id: {token}", *first[1:], framing)
    ask = talk.raw(token, head + body, REFUSED | {"shown", "none"}, hot=False)
    if rng.random() < 0.5:
        await talk.send(ask)
    else:
        await talk.put(head, ask)
        await asyncio.sleep(0.005)
        await talk.put(body)
    await answered(talk)


async def in_chunks(talk: Talk) -> None:
    """Send a body in chunks, with extensions and trailers."""
    rng, token = talk.rng, new_token(talk.rng)
    body = talk.body(token, "whole", "good", stream=False)
    size = rng.choice((7, 50, len(body)))
    note = rng.choice(("", "", ";x=1", ';name="a;b"', ";" + "e" * 100))
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    sent = b"".join(b"%x%b\r\n%b\r\n" % (len(p), note.encode(), p) for p in pieces)
    trailer = rng.choice((b"", b"", b"x-checksum: 1\r\n"))
    head = lines(
        f"POST {CHAT} HTTP/1.1", HOST, f"x-request-id: {token}", "transfer-encoding: chunked"
    )
    ask = talk.raw(token, head + sent + b"0\r\n" + trailer + b"\r\n", CLEAR)
    await talk.dribble(ask, rng.choice((1, 1, 30)))
    await answered(talk)


async def endless_extras(talk: Talk) -> None:
    """Send extensions or trailers without end."""
    token = new_token(talk.rng)
    head = lines(
        f"POST {CHAT} HTTP/1.1", HOST, f"x-request-id: {token}", "transfer-encoding: chunked"
    )
    body = talk.body(token, "whole", "good", stream=False)
    if talk.rng.random() < 0.5:
        extra = b"%x;%b\r\n%b\r\n0\r\n\r\n" % (len(body), b"x" * 30_000, body)
    else:
        trailers = b"".join(b"x-%d: %b\r\n" % (i, b"y" * 100) for i in range(300))
        extra = b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(body), body, trailers)
    await talk.send(talk.raw(token, head + extra, REFUSED))
    await answered(talk)


async def expects(talk: Talk) -> None:
    good = talk.rng.random() < 0.7
    wish = "expect: 100-continue" if good else "expect: miracles"
    ask = talk.ask(headers=(wish,), may=CLEAR if good else REFUSED)
    end = ask.data.index(b"\r\n\r\n") + 4
    await talk.put(ask.data[:end], ask)
    await asyncio.sleep(talk.rng.choice((0.0, 0.01)))
    await talk.put(ask.data[end:])
    await answered(talk)


async def too_much(talk: Talk) -> None:
    """Send more than may be: a body, a head, headers."""
    rng = talk.rng
    kind = rng.randrange(4)
    if kind == 0:
        ask = talk.ask(pad=BODY_BYTES_MAX + 10, may=REFUSED)
    elif kind == 1:
        ask = talk.ask(headers=("x-large: " + "h" * 70_000,), may=REFUSED)
    elif kind == 2:
        ask = talk.ask(headers=tuple(f"x-{n}: 1" for n in range(200)), may=REFUSED)
    else:
        token = new_token(rng)
        head = lines(f"POST {CHAT} HTTP/1.1", HOST, "content-length: 99999999999")
        ask = talk.raw(token, head + b"{" * 1000, REFUSED)
    await talk.send(ask)
    await answered(talk)


async def large_but_allowed(talk: Talk) -> None:
    await talk.send(talk.ask(pad=talk.rng.choice((100_000, 400_000, 900_000))))
    await answered(talk)


async def lies_about_its_length(talk: Talk) -> None:
    """Say less than is sent: the rest is a request of its own, and none that can be read."""
    ask = talk.ask()
    at = ask.data.index(b"content-length: ")
    end = ask.data.index(b"\r\n", at)
    shorter = ask.data[:at] + b"content-length: 30" + ask.data[end:]
    rest = talk.raw(new_token(talk.rng), b"", REFUSED | {"none"})
    await talk.put(shorter, talk.raw(ask.token, shorter, REFUSED), rest)
    await answered(talk)


async def never_finishes(talk: Talk) -> None:
    """Say more than is sent, or send no end of a head, and wait: told so after a second."""
    ask = talk.ask(may=REFUSED | {"none"})
    end = ask.data.index(b"\r\n\r\n") + 4
    cut = talk.rng.choice((20, end - 2, end + 10))
    await talk.put(ask.data[:cut], ask)
    await answered(talk)


async def unclear(talk: Talk) -> None:
    """Send what two servers could read in two ways, or nobody can read."""
    rng, token = talk.rng, new_token(talk.rng)
    body = talk.body(token, "whole", "good", stream=False)
    length = f"content-length: {len(body)}"
    post, ident = f"POST {CHAT} HTTP/1.1", f"x-request-id: {token}"
    head = rng.choice(
        (
            lines(post, HOST, ident, length, "transfer-encoding: chunked"),
            lines(post, HOST, ident, length, "content-length: 5"),
            lines(post, HOST, ident, "transfer-encoding: chunked, identity"),
            lines(post, HOST, ident, "transfer-encoding: xchunked"),
            lines(post, HOST, HOST, ident, length),
            lines(post, ident, length),
            lines(post, HOST, ident, "content-length : 5"),
            lines(post, HOST, ident, "content-length: -5"),
            lines(post, HOST, ident, "content-length: +5"),
            lines(post, HOST, ident, " folded: 1", length),
            lines(post, HOST, "x-nul: a\x00b", length),
            lines(f"POST {CHAT} HTTP/2.0", HOST, ident, length),
            lines(f"POST {CHAT} HTTP/1.9", HOST, ident, length),
            lines(f"POST {CHAT}", HOST, ident, length),
            lines(f"POST http://127.0.0.1{CHAT} HTTP/1.1", HOST, ident, length),
            lines("PRI * HTTP/2.0"),
            post.encode() + b"\n" + HOST.encode() + b"\n\n",
        )
    )
    await talk.put(head + body, talk.raw(token, head, REFUSED))
    await answered(talk)


async def noise(talk: Talk) -> None:
    data = talk.rng.randbytes(talk.rng.randint(1, 3000))
    ask = talk.raw(new_token(talk.rng), data, REFUSED | {"none"}, hot=False)
    await talk.put(data + b"\r\n\r\n", ask)
    await answered(talk)


async def bad_bodies(talk: Talk) -> None:
    """Send well-framed nonsense."""
    rng, token = talk.rng, new_token(talk.rng)
    body = rng.choice(
        (
            b"", b"{", b"[]", b"null", b'{"model": 5}', b'{"model": "good"', b"\xff\xfe", b'"text"',
            b'{"messages": []}', b'{"model": "good", "model": "bad"}', b"[" * 5000,
            b'{"model": "nobody", "messages": []}', b'{"model": "good", "stream": "yes"}',
        )
    )  # fmt: skip
    head = lines(f"POST {CHAT} HTTP/1.1", HOST, f"content-length: {len(body)}")
    await talk.send(talk.raw(token, head + body, REFUSED))
    await talk.hear_all()
    if not talk.closes:
        await talk.send(talk.ask())
        await talk.hear_all()
    talk.close()


async def other_families(talk: Talk) -> None:
    """Ask in a dialect that no node speaks."""
    path = talk.rng.choice(("/v1/messages", "/api/chat", "/api/generate", "/v1/unknown"))
    await talk.send(talk.ask(path=path, may=REFUSED))
    await talk.hear_all()
    talk.close()


async def old_version(talk: Talk) -> None:
    await talk.send(talk.ask(version="HTTP/1.0", stream=False, may=CLEAR | GONE))
    await talk.hear_all()
    talk.close()


async def large_pages(talk: Talk) -> None:
    """Send a body to a route that is not relayed, and leave in the middle of it or not."""
    token, path = new_token(talk.rng), talk.rng.choice(("/jobs", "/health", "/session", "/x"))
    length = talk.rng.choice((10, 100_000, 2_000_000))
    head = lines(f"POST {path} HTTP/1.1", HOST, f"content-length: {length}")
    sent = talk.rng.choice((length, length // 2))
    ask = talk.raw(token, b"", REFUSED | {"none", "cut"}, hot=False)
    await talk.put(head + b"{" * sent, ask)
    if sent < length:
        await asyncio.sleep(0.01)
        talk.reset()
    else:
        await answered(talk)


ODD_PLAYS: list[tuple[int, Play]] = [
    (2, upgrades),
    (3, smuggles),
    (5, in_chunks),
    (2, endless_extras),
    (3, expects),
    (3, too_much),
    (3, large_but_allowed),
    (2, lies_about_its_length),
    (1, never_finishes),
    (4, unclear),
    (3, noise),
    (4, bad_bodies),
    (2, other_families),
    (1, old_version),
    (2, large_pages),
]
