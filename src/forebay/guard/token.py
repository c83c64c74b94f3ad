"""The token between guards and gateways, and the header that it travels in.

It has a header of its own, so that `Authorization` stays free for the key of the backend behind
the guard. A gateway that has the guard among its `[[nodes]]`, with the token as the node's key,
sends it as `Authorization: Bearer`; that is taken, too, and goes no further.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from forebay.wire.heads import Headers

TOKEN_HEADER: Final = "x-forebay-guard-token"
_HEADER: Final = TOKEN_HEADER.encode()
_BEARER: Final = b"bearer "


def same(presented: bytes, token: str) -> bool:
    """Compare in a time that tells nothing about where they differ."""
    return compare_digest(presented, token.encode())


def presents(headers: Headers, token: str) -> bool:
    """Say whether a request shows the token, in its own header or as a key."""
    return any(
        same(value, token)
        if name == _HEADER
        else name == b"authorization" and _is_bearer_of(value, token)
        for name, value in headers
    )


def without_token(headers: Headers, token: str) -> Headers:
    """Return the headers that are not about the guard: the token stays here."""
    return [
        (name, value)
        for name, value in headers
        if name != _HEADER
        and not (token and name == b"authorization" and _is_bearer_of(value, token))
        and not (token and name == b"x-api-key" and same(value, token))
    ]


def _is_bearer_of(value: bytes, token: str) -> bool:
    return value[:7].lower() == _BEARER and same(value[7:].strip(), token)
