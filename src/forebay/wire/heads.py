"""Heads of requests and answers: what is written, what is dropped, what is refused."""

from http import HTTPStatus
from typing import Final

from msgspec import Struct

from forebay.wire.client import Headers

HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer"
    b" transfer-encoding upgrade".split()
)
"""What concerns one connection only (RFC 9110, 7.6.1)."""

STATUS_LINES: Final = {
    status: f"HTTP/1.1 {status} {phrase}\r\n".encode()
    for status, phrase in (
        *((status.value, status.phrase) for status in HTTPStatus if status >= 200),
        (499, "Client Closed Request"),
    )
}


class RequestHead(Struct, gc=False):
    """The head of one request; header names are in lower case."""

    method: bytes
    target: bytes
    headers: Headers
    is_http_11: bool
    keep_alive: bool

    def get(self, name: bytes) -> bytes | None:
        """Return the value of the first header of that name."""
        for key, value in self.headers:
            if key == name:
                return value
        return None


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
