"""A body while it arrives: where it ends, and what has come of it.

It ends by its length, or by its chunks (RFC 9112, 6 and 7.1). llhttp reads heads only; a body is
framed here, so that nothing a head says (an `Upgrade`, say) can make a parser take body bytes for
the next message, and so that chunk extensions and trailers, of which llhttp tells nothing, have a
bound.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import Final

EXTENSION_BYTES_MAX: Final = 4096
"""Of all chunks of a body together; nobody uses them (RFC 9112, 7.1.1, asks for a limit)."""
TRAILER_BYTES_MAX: Final = 8192
CHUNKS_MAX: Final = 100_000
"""Chunks one body may come in; 10^6 of one byte are an attack on our CPU."""
CHUNKS_AT_ONCE: Final = 1000
"""Read in one turn of the event loop: under a millisecond."""
SIZE_LINE_BYTES: Final = 16 + EXTENSION_BYTES_MAX
LARGE_BYTES: Final = 262_144
"""From here on a body grows in one buffer: joining 30 MiB at the end would take 15 ms at once."""
PARTS_MAX: Final = 64
"""Pieces kept apart: a piece of one byte takes forty in memory."""

_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED: Final = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"'
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;%b(?:=(?:%b|%b))?)*" % (_TOKEN, _TOKEN, _QUOTED))
_TRAILER = re.compile(_TOKEN + rb":[\t\x20-\x7e\x80-\xff]*")


def _first_lines(bytes_max: int) -> list[bytes]:
    """Return, for each length of a whole chunk, its first line; nothing where there is none."""
    lines = [b""] * bytes_max
    for size in range(1, bytes_max):
        line = b"%x\r\n" % size
        length = len(line) + size + 2
        if length < bytes_max:
            lines[length] = line
    return lines


_FIRST_LINES: Final = _first_lines(4096)


class BadFraming(Exception):
    """The body is not framed as HTTP/1.1 wants it; where it ends is unknown."""


class TooManyChunks(BadFraming):
    """The body comes in more chunks than any honest client makes."""


class BodyFraming:
    """Cuts one body out of the bytes of a connection."""

    __slots__ = ("_chunks", "_chunks_max", "_extension_bytes", "_left", "_line", "_state",
                 "_trailer_bytes", "is_whole")  # fmt: skip

    def __init__(self, length: int, chunks_max: int = CHUNKS_MAX) -> None:
        """Expect so many bytes; -1 for chunks."""
        self._state = "data" if length >= 0 else "size"
        self._left = length  # of the body, or of the present chunk
        self._line = b""  # of a chunk's size or of a trailer, as far as it has come
        self._chunks = -1 if length >= 0 else 0
        self._chunks_max = chunks_max
        self._extension_bytes = 0
        self._trailer_bytes = 0
        self.is_whole = length == 0
        """Whether the last byte has come."""

    @property
    def is_chunked(self) -> bool:
        return self._chunks >= 0

    def take_chunk(self, data: bytes) -> bytes:
        """Return what is in the chunk that `data` is, if it is one and nothing else; else nothing.

        So comes nearly every piece of a stream. The length says what its first line must be.
        """
        if self._line or self._state != "size":
            return b""
        if len(data) >= len(_FIRST_LINES):
            return b""
        line = _FIRST_LINES[len(data)]
        if not line or not data.startswith(line) or not data.endswith(b"\r\n"):
            return b""
        self._count_chunk()
        return data[len(line) : -2]

    def take(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        """Add to `pieces` what `data` holds of the body from `at` on; return where it stopped.

        It stops at the end of the data, at the end of the body, or after `CHUNKS_AT_ONCE`: then
        call it again in another turn of the loop. Raises BadFraming.
        """
        if self._chunks < 0:
            return self._take_data(data, at, pieces)
        size = len(data)
        chunks_max = self._chunks + CHUNKS_AT_ONCE
        while at < size and not self.is_whole and self._chunks < chunks_max:
            if self._state == "data":
                at = self._take_data(data, at, pieces)
            else:
                at = self._take_line(data, at)
        return at

    def _take_data(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        left, size = self._left, len(data)
        end = min(at + left, size)
        if end > at:
            pieces.append(data if at == 0 and end == size else data[at:end])
        self._left = left = left - (end - at)
        if left == 0:
            if self._chunks < 0:
                self.is_whole = True
            else:
                self._state = "end"
        return end

    def _take_line(self, data: bytes, at: int) -> int:
        """Read on in a line; what has not ended yet is kept, up to its bound."""
        found = data.find(b"\n", at)
        end = len(data) if found < 0 else found + 1
        line = self._line + data[at:end] if self._line else data[at:end]
        if found < 0:
            self._line = line
            if len(line) > (TRAILER_BYTES_MAX if self._state == "trailer" else SIZE_LINE_BYTES):
                raise BadFraming(_TOO_LONG[self._state])
            return end
        self._line = b""
        if not line.endswith(b"\r\n"):
            raise BadFraming("a line of the chunked body does not end in CRLF")
        if self._state == "size":
            self._begin_chunk(line[:-2])
        elif self._state == "trailer":
            self._take_trailer(line[:-2])
        elif len(line) == 2:
            self._state = "size"
        else:
            raise BadFraming("a chunk is longer than it says")
        return end

    def _begin_chunk(self, line: bytes) -> None:
        read = _SIZE.fullmatch(line)
        if read is None:
            raise BadFraming("the first line of a chunk is not its size, in hexadecimal digits")
        self._extension_bytes += len(line) - read.end(1)
        if self._extension_bytes > EXTENSION_BYTES_MAX:
            raise BadFraming(_TOO_LONG["size"])
        self._count_chunk()
        self._left = int(read[1], 16)
        self._state = "data" if self._left else "trailer"

    def _count_chunk(self) -> None:
        self._chunks += 1
        if self._chunks > self._chunks_max:
            raise TooManyChunks(f"the body comes in more than {self._chunks_max} chunks")

    def _take_trailer(self, line: bytes) -> None:
        if not line:
            self.is_whole = True
            return
        self._trailer_bytes += len(line) + 2
        if self._trailer_bytes > TRAILER_BYTES_MAX:
            raise BadFraming(_TOO_LONG["trailer"])
        if _TRAILER.fullmatch(line) is None:
            raise BadFraming("a trailer of the chunked body is not a header")


_TOO_LONG: Final = {
    "size": f"chunk extensions take more than {EXTENSION_BYTES_MAX} bytes",
    "trailer": f"trailers take more than {TRAILER_BYTES_MAX} bytes",
    "end": "a chunk is longer than it says",
}


class RequestBody:
    """Collects pieces; a few small ones are kept as they are, other bodies grow in place."""

    __slots__ = ("_large", "_parts", "size_bytes")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._large: BytesIO | None = None
        self.size_bytes = 0

    def add(self, data: bytes, bytes_max: int) -> bool:
        """Take a piece; False when the body is larger than it may be."""
        self.size_bytes += len(data)
        if self.size_bytes > bytes_max:
            return False
        if self._large is not None:
            self._large.write(data)
            return True
        self._parts.append(data)
        if self.size_bytes > LARGE_BYTES or len(self._parts) > PARTS_MAX:
            self._large = BytesIO()
            self._large.writelines(self._parts)
            self._parts = []
        return True

    def take(self) -> bytes:
        """Return the whole body and be empty again; a large one is not copied."""
        parts, large = self._parts, self._large
        self.clear()
        if large is not None:
            return large.getvalue()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def clear(self) -> None:
        if self.size_bytes:
            self._parts, self._large = [], None
            self.size_bytes = 0
