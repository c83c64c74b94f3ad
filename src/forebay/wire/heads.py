"""Heads of requests and answers: how they are read, what is dropped, what is written.

A client that keeps its connection sends the same head with every request, but for its length; so
does a server with its answers, but for length and the second of the date. Reading a head line by
line costs more than all else on the way, so the lines are compared with those of the last head,
in one comparison, and what was made of them is used again (`HeadCache`). Where a few lines differ
that mean nothing to us, such as the ids of a trace, only those are read (`Head.amend`). llhttp has
seen every byte before: in its strict mode lines end in CRLF and are not folded, so splitting them
is safe.

Where a head has come twice in a row, even the parser may be left out: bytes that are the same but
for the digits of the length, and exactly as long as these say, are one whole message of which
llhttp would say what it said before (`HeadCache.body_at`). That is 6 of the 40 µs which a compiled
request took in user space, and more of a plain one. Whatever differs in any way is parsed.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Headers = list[tuple[bytes, bytes]]

HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer"
    b" transfer-encoding upgrade".split()
)
"""What concerns one connection only (RFC 9110, 7.6.1)."""

OF_THE_CONNECTION: Final = frozenset((b"expect", b"upgrade", b"transfer-encoding"))
SECRET: Final = frozenset(b"authorization proxy-authorization x-api-key api-key cookie".split())
"""Not remembered for longer than a connection."""
CHANGES_MAX: Final = 4
LINES_MAX: Final = 1024
LINE_BYTES_MAX: Final = 128

STATUS_LINES: Final = {
    status: f"HTTP/1.1 {status} {phrase}\r\n".encode()
    for status, phrase in (
        *((status.value, status.phrase) for status in HTTPStatus if status >= 200),
        (499, "Client Closed Request"),
    )
}

LENGTH: Final = b"content-length:"
MEDIA: Final = (b"audio/", b"image/", b"video/")


class Head:
    """What was made of the lines of a head."""

    __slots__ = ()

    def amend(self, changes: list[tuple[int, bytes]]) -> bool:
        """Take other lines in the place of some; False where it must be read anew.

        After False the head is not used again.
        """
        return False


class RequestHead(Head):
    """The head of a request; header names are in lower case.

    The same object serves all requests of a connection that have the same head; a site may extend
    it by what it makes of a head (`Site.read_head`).
    """

    __slots__ = (
        "expects", "headers", "is_chunked", "is_http_11", "is_ours", "keep_alive", "method",
        "target", "upgrades", "version",
    )  # fmt: skip

    def __init__(
        self, method: bytes, target: bytes, headers: Headers, version: bytes = b"HTTP/1.1"
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.version = version
        self.is_http_11 = is_http_11 = version == b"HTTP/1.1"
        self.keep_alive = True
        self.is_ours = True
        """Whether the site answers it itself."""
        self.expects = False
        """Whether the client holds its body back until it is encouraged."""
        self.upgrades = False
        """Whether it offers another protocol; no offer is taken."""
        self.is_chunked = False
        """Whether the body comes in chunks, and not by its length."""
        for name, value in headers:
            if name not in OF_THE_CONNECTION:
                continue
            if name == b"expect":
                self.expects |= is_http_11 and value.lower() == b"100-continue"
            elif name == b"upgrade":
                self.upgrades = True
            else:
                self.is_chunked = True

    def get(self, name: bytes) -> bytes | None:
        """Return the value of the first header of that name."""
        return first_of(self.headers, name)


class AnswerHead(Head):
    """The head of an answer, without what concerns one connection only and without its length."""

    __slots__ = (
        "content_type", "framed", "headers", "is_chunked", "is_media", "status", "written",
    )  # fmt: skip

    def __init__(
        self, status: int, headers: Headers, *, framed: bool = True, is_chunked: bool = False
    ) -> None:
        self.status = status
        self.headers = headers
        self.content_type = first_of(headers, b"content-type") or b""
        self.is_media = status < 300 and self.content_type.startswith(MEDIA)
        """Whether it is sound or pictures, which are played and shown as they come."""
        self.framed = framed
        """Whether the answer says by itself where it ends."""
        self.is_chunked = is_chunked
        """Whether the body comes in chunks, and not by its length or up to the last byte."""
        self.written = b""
        """Status line and headers as a sink sends them on, once it has written them out."""

    def get(self, name: bytes) -> bytes | None:
        """Return the value of the first header of that name."""
        return first_of(self.headers, name)


def first_of(headers: Headers, name: bytes) -> bytes | None:
    """Return the value of the first header of that name."""
    for key, value in headers:
        if key == name:
            return value
    return None


H = TypeVar("H", bound=Head)


class HeadCache(Generic[H]):
    """Makes heads of lines, and remembers the last one."""

    __slots__ = ("_after", "_before", "_changes", "_length_at", "_lines", "_make", "last", "length")

    def __init__(self, make: Callable[[list[bytes]], H]) -> None:
        self._make = make
        self._lines: list[bytes] = []
        self._length_at = 0
        self.last: H
        """The head that was read last."""
        self._before = b""  # the last head up to the digits of its length; empty while not learned
        self._after = b""  # the rest of it
        self._changes = False  # whether the last one was amended
        self.length: bytes | None = None
        """The length that the last head gave; None when it gave none."""

    def read(self, lines: list[bytes]) -> tuple[H, bool]:
        """Return the head that these lines are, and whether it is the one from before."""
        at, known = self._length_at, self._lines
        if len(lines) == len(known):
            line = lines[at]
            has_length = at > 0 and line[:15].lower() == LENGTH
            if has_length:
                lines[at] = known[at]
            self._changes = lines != known
            if (has_length or not at) and (not self._changes or self._amend(lines)):
                self.length = line[15:].strip() if at else None
                return self.last, True
            lines[at] = line
        self.last = head = self._make(lines)
        self._lines = lines
        self._before = b""
        self._changes = False
        if not (0 < at < len(lines) and lines[at][:15].lower() == LENGTH):  # where it was before
            at = _length_at(lines)
        self._length_at, self.length = at, lines[at][15:].strip() if at else None
        return head, False

    def _amend(self, lines: list[bytes]) -> bool:
        """Change the last head as these lines differ from it, if that is soon done."""
        changes = [
            (at, line)
            for at, (line, known) in enumerate(zip(lines, self._lines, strict=True))
            if line != known
        ]
        if not changes[0][0] or len(changes) > CHANGES_MAX or not self.last.amend(changes):
            return False
        self._lines = lines
        self._before = b""
        return True

    def learn(self, raw: bytes) -> None:
        """Know the last head by its bytes, too; only for one after which the connection goes on.

        Call it where a head has come again: of those that change each time nothing is gained.
        """
        if self._before or self._changes or not self._length_at:
            return
        at = raw.lower().find(b"\r\n" + LENGTH) + 2 + len(LENGTH)
        at += len(raw[at:]) - len(raw[at:].lstrip(b" \t"))
        end = raw.find(b"\r", at)
        if raw[at:end].isdigit():
            self._before, self._after = raw[:at], raw[end:]

    def body_at(self, data: bytes) -> int:
        """Return where the body begins if this is one whole message with the last head, else 0."""
        before = self._before
        if not before or not data.startswith(before):
            return 0
        start, after = len(before), self._after
        rest = len(data) - start - len(after)  # digits and body: how many there are says of which
        width, power = 1, 10
        while rest >= power + width:
            width, power = width + 1, power * 10
        digits = b"%d" % (rest - width)
        at = start + width + len(after)
        if len(digits) != width or data[start:at] != digits + after:
            return 0
        self.length = digits
        return at


def _length_at(lines: list[bytes]) -> int:
    """Return which line gives the length, 0 where none does; llhttp accepts no second one."""
    for index, line in enumerate(lines):
        if index and line[:15].lower() == LENGTH:
            return index
    return 0


def make_request_head(lines: list[bytes]) -> RequestHead:
    """Return the head that these lines are."""
    return RequestHead(*split_request(lines))


def split_request(lines: list[bytes]) -> tuple[bytes, bytes, Headers, bytes]:
    """Return the method, the target, the headers and the version of a request."""
    method, target, *version = lines[0].split(b" ", 2)  # HTTP/0.9 says no version
    return method, target, split_headers(lines), version[0].strip() if version else b""


def without_upgrade(raw: bytes) -> bytes:
    """Return a whole request head without offers of another protocol."""
    lines = raw.split(b"\r\n")
    return b"\r\n".join([line for line in lines if line[:8].lower() != b"upgrade:"])


def make_answer_head(lines: list[bytes]) -> AnswerHead:
    """Return the head that these lines are."""
    status = int(lines[0].split(b" ", 2)[1])
    headers = split_headers(lines)
    has_body = status not in (204, 304)
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    is_chunked = has_body and bool(codings) and _ends_chunked(codings[-1])
    framed = not has_body or is_chunked or first_of(headers, b"content-length") is not None
    kept = [pair for pair in end_to_end(headers) if pair[0] != b"content-length"]
    return AnswerHead(status, kept, framed=framed, is_chunked=is_chunked)


def _ends_chunked(codings: bytes) -> bool:
    return codings.lower().rpartition(b",")[2].strip() == b"chunked"


def split_headers(lines: list[bytes]) -> Headers:
    """Return the headers of a head whose first line is something else."""
    return [_known_lines.get(line) or _remembered(line) for line in lines[1:]]


_known_lines: dict[bytes, tuple[bytes, bytes]] = {}
"""What short lines say: the heads of all clients of a kind differ in one or two of them."""


def split_line(line: bytes) -> tuple[bytes, bytes]:
    """Return the header that a line is."""
    name, _, value = line.partition(b":")
    return name.lower(), value.strip(b" \t")


def _remembered(line: bytes) -> tuple[bytes, bytes]:
    pair = split_line(line)
    if len(line) <= LINE_BYTES_MAX and pair[0] not in SECRET:
        if len(_known_lines) >= LINES_MAX:
            _known_lines.clear()
        _known_lines[line] = pair
    return pair


def status_line(status: int) -> bytes:
    """Return the first line of an answer."""
    return STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status


def header_block(headers: Headers) -> bytes:
    """Return headers as they are written, without the empty line at the end."""
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


def end_to_end(headers: Headers) -> Headers:
    """Return what concerns both ends: hop-by-hop headers and those `Connection` names are gone."""
    named: set[bytes] = set()
    for name, value in headers:
        if name == b"connection":
            named.update(part.strip().lower() for part in value.split(b","))
    return [pair for pair in headers if pair[0] not in HOP_BY_HOP and pair[0] not in named]
