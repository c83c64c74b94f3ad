"""Requests that are refused before anyone asks what they want.

llhttp in its strict mode refuses what request smuggling needs (both length headers, repeated
ones, a bare LF, folded headers, blanks before the colon); the rest is refused here: `CONNECT`,
another version of HTTP, a second Host or Origin, no Host, an odd one, a transfer coding that is
not exactly `chunked`, an expectation that is not `100-continue`, a target that does not start with
a slash.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from forebay.wire.heads import RequestHead

_HOST = re.compile(rb"(?:[A-Za-z0-9._~-]{1,255}|\[[0-9A-Fa-f:.]{2,64}\])(?::[0-9]{1,5})?")
_OTHER_VERSION = re.compile(
    rb"[A-Z]{1,32} [\x21-\x7e]+ HTTP/(?!1\.[01]\r)[0-9]{1,3}(\.[0-9]{1,3})?\r\n"
)
_TARGET = re.compile(rb"/[\x21-\x7e]*|\*")


class Refusal(Struct, frozen=True, gc=False):
    """Why a request is not even read; the connection closes after the answer."""

    code: str
    message: str
    param: str | None = None
    status: int = 0
    """The HTTP status, where it is not the usual one of the code."""


BUSY: Final = Refusal("queue_full", "queue is full: no memory is free for the request body")
CROWDED: Final = Refusal("too_many_connections", "this server has as many connections as it may")
STOPPING: Final = Refusal("shutting_down", "this server is shutting down")
VERSION: Final = Refusal("unsupported", "only HTTP/1.1 and HTTP/1.0 are offered", "version", 505)


def find_fault(head: RequestHead) -> Refusal | None:
    """Return what is wrong with a head, or None."""
    return _first_line_fault(head) or _headers_fault(head)


def _first_line_fault(head: RequestHead) -> Refusal | None:
    if head.version not in (b"HTTP/1.1", b"HTTP/1.0"):
        return VERSION
    if head.method == b"CONNECT":
        return Refusal("unsupported", "this is no proxy: CONNECT is not offered", "method")
    if _TARGET.fullmatch(head.target) is None:
        return Refusal("invalid_request", "the request target must be a path", "target")
    if head.is_chunked and not head.is_http_11:
        return Refusal("invalid_request", "HTTP/1.0 knows no chunks", "transfer-encoding")
    return None


def _headers_fault(head: RequestHead) -> Refusal | None:
    hosts = origins = 0
    for name, value in head.headers:
        check = _CHECKS.get(name)
        if check is not None:
            hosts += name == b"host"
            fault = check(value)
            if fault is not None:
                return fault
        elif name == b"origin":
            origins += 1
    if hosts > 1 or (hosts == 0 and head.is_http_11):
        return Refusal("invalid_request", "exactly one Host header is needed", "host")
    if origins > 1:
        return Refusal("invalid_request", "only one Origin header is allowed", "origin")
    return None


def _host_fault(value: bytes) -> Refusal | None:
    if _HOST.fullmatch(value) is not None:
        return None
    return Refusal("invalid_request", "the Host header is not a host", "host")


def body_too_large(body_max_bytes: int) -> Refusal:
    """Return the refusal of a body that is larger than it may be."""
    return Refusal(
        "body_too_large",
        f"the request body is larger than {body_max_bytes} bytes (server.body_max_bytes)",
    )


def _transfer_fault(value: bytes) -> Refusal | None:
    if value.strip().lower() == b"chunked":
        return None
    return Refusal(
        "invalid_request", "only the transfer coding chunked is read", "transfer-encoding"
    )


def _upgrade_fault(value: bytes) -> Refusal | None:
    """Refuse WebSocket; an offer of HTTP/2 (h2c) may be ignored, and many clients make one."""
    if b"websocket" not in value.lower():
        return None
    return Refusal("unsupported", "WebSocket is not offered; use server-sent events", "upgrade")


def _expect_fault(value: bytes) -> Refusal | None:
    if value.lower() == b"100-continue":
        return None
    return Refusal("unsupported", "only 100-continue may be expected", "expect", 417)


_CHECKS = {
    b"expect": _expect_fault,
    b"host": _host_fault,
    b"transfer-encoding": _transfer_fault,
    b"upgrade": _upgrade_fault,
}


def from_parser(fault: str, raw: bytes) -> Refusal:
    """Return the refusal for bytes that are no HTTP/1.1 request."""
    if raw.startswith(b"PRI * HTTP/2"):
        return Refusal("unsupported", "HTTP/2 is not offered; use HTTP/1.1")
    if _OTHER_VERSION.match(raw) is not None:
        return VERSION
    return Refusal("invalid_request", f"this is not a valid HTTP/1.1 request: {fault}")
