"""A strict reader of HTTP/1.1 answers, written apart from the product's own.

What it cannot read as exactly one answer is a failure of whoever sent it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [\t\x20-\x7e\x80-\xff]*")
HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00\r\n]*?)[ \t]*")
CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,8}")
BODYLESS = (204, 304)


class Malformed(Exception):
    """What came is not HTTP/1.1."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    raw: bytes
    whole: bool = True
    """False where the connection ended before it did."""

    @property
    def closes(self) -> bool:
        return "close" in self.headers.get("connection", "").lower()


def take_answer(buffer: bytearray, *, ended: bool) -> Answer | None:
    """Take one final answer out of the buffer; None while more must come.

    `ended` says that nothing more can come. Raises Malformed.
    """
    while True:
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            return _cut(buffer, 0, {}) if ended and buffer else None
        status, headers = _head(bytes(buffer[:end]))
        if status >= 200:
            return _with_body(buffer, end + 4, status, headers, ended=ended)
        del buffer[: end + 4]  # an interim answer


def _head(raw: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = raw.split(b"\r\n")
    matched = STATUS_LINE.fullmatch(first)
    if matched is None:
        raise Malformed(f"no status line: {first[:80]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        header = HEADER_LINE.fullmatch(line)
        if header is None:
            raise Malformed(f"no header: {line[:80]!r}")
        name = header[1].decode().lower()
        if name in ("content-length", "transfer-encoding") and name in headers:
            raise Malformed(f"{name} twice")
        headers[name] = header[2].decode("latin-1")
    return int(matched[1]), headers


def _with_body(
    buffer: bytearray, at: int, status: int, headers: dict[str, str], *, ended: bool
) -> Answer | None:
    if status in BODYLESS:
        return _done(buffer, at, status, headers, b"")
    if "transfer-encoding" in headers:
        if "content-length" in headers or headers["transfer-encoding"] != "chunked":
            raise Malformed(f"unclear framing: {headers}")
        chunked = _chunks(buffer, at)
        if chunked is not None:
            body, end = chunked
            return _done(buffer, end, status, headers, body)
    elif "content-length" in headers:
        end = at + int(headers["content-length"])
        if len(buffer) >= end:
            return _done(buffer, end, status, headers, bytes(buffer[at:end]))
    elif ended:
        return _done(buffer, len(buffer), status, headers, bytes(buffer[at:]))
    return _cut(buffer, status, headers) if ended else None


def _chunks(buffer: bytearray, at: int) -> tuple[bytes, int] | None:
    pieces: list[bytes] = []
    while True:
        line_end = buffer.find(b"\r\n", at)
        if line_end < 0:
            return None
        size_text = bytes(buffer[at:line_end])
        if CHUNK_SIZE.fullmatch(size_text) is None:
            raise Malformed(f"no chunk size: {size_text[:40]!r}")
        size, at = int(size_text, 16), line_end + 2
        if len(buffer) < at + size + 2:
            return None
        if buffer[at + size : at + size + 2] != b"\r\n":
            raise Malformed("a chunk does not end where it says")
        if not size:
            return b"".join(pieces), at + 2
        pieces.append(bytes(buffer[at : at + size]))
        at += size + 2


def _done(buffer: bytearray, end: int, status: int, headers: dict[str, str], body: bytes) -> Answer:
    raw = bytes(buffer[:end])
    del buffer[:end]
    return Answer(status, headers, body, raw)


def _cut(buffer: bytearray, status: int, headers: dict[str, str]) -> Answer:
    raw = bytes(buffer)
    buffer.clear()
    return Answer(status, headers, raw, raw, whole=False)
