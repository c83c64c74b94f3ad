"""Classify a request to the guard by its head.

Three kinds are allowed: the inference routes of the API families, which take a slot; `GET`, by
which gateways and people probe the backend, and routes that run no model (counting tokens), which
take none; and the guard's own status. The rest is rejected: what is neither known to be inference
nor known to be harmless (loading, pulling or deleting a model) could run on the backend beside the
slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from forebay.guard.token import presents, without_token
from forebay.relay.anthropic import ANTHROPIC
from forebay.relay.ollama import OLLAMA
from forebay.relay.openai import OPENAI
from forebay.wire.heads import end_to_end, header_block
from forebay.wire.refusals import Refusal

if TYPE_CHECKING:
    from forebay.wire.heads import RequestHead
    from forebay.wire.hosts import HostGuard


_FAMILIES: Final = (OPENAI, ANTHROPIC, OLLAMA)
INFERENCE: Final = frozenset(route.encode() for family in _FAMILIES for route in family.routes)
BELOW: Final = tuple(prefix.encode() for family in _FAMILIES for prefix in family.prefixes)
FREE: Final = frozenset(route.encode() for family in _FAMILIES for route in family.free_routes)
STATUS_PATH: Final = b"/guard/status"
_OURS: Final = frozenset((b"host", b"content-length", b"expect"))
_KEYS: Final = frozenset((b"authorization", b"x-api-key"))

RequestKind: TypeAlias = Literal["run", "probe", "status", "rejected"]


class GuardRequest:
    """What one head asks for, and how it is forwarded to the backend."""

    __slots__ = ("forwarded", "head", "kind", "refusal")

    def __init__(
        self, head: RequestHead, kind: RequestKind, forwarded: bytes, refusal: Refusal | None = None
    ) -> None:
        self.head = head
        self.kind = kind
        self.forwarded = forwarded
        """The head for the backend, up to the length of the body."""
        self.refusal = refusal


class RequestClassifier:
    """Classifies heads; `host` and `api_key` are the backend's."""

    def __init__(self, hosts: HostGuard, token: str, host: str, api_key: str) -> None:
        self._hosts = hosts
        self._token = token
        self._host = host.encode()
        key = api_key.encode()
        self._credentials = (
            b"authorization: Bearer %b\r\nx-api-key: %b\r\n" % (key, key) if key else b""
        )

    def classify(self, head: RequestHead) -> GuardRequest:
        refusal = self._refusal(head)
        if refusal is not None:
            return GuardRequest(head, "rejected", b"", refusal)
        return GuardRequest(head, _kind(head), self._forwarded(head))

    def _refusal(self, head: RequestHead) -> Refusal | None:
        host = head.get(b"host")
        if not self._hosts.allows_host(host):
            return Refusal("forbidden_host", "this Host is not served here", "host")
        if not self._hosts.allows_origin(head.get(b"origin"), host):
            return Refusal("forbidden_host", "pages of this Origin may not call", "origin")
        if self._token and not presents(head.headers, self._token):
            return Refusal(
                "unauthorized",
                "this guard serves only gateways that know its token; send requests to the gateway",
                "X-Forebay-Guard-Token",
            )
        if head.method not in (b"GET", b"POST"):
            return Refusal("method_not_allowed", "a guard forwards GET and POST only", "method")
        if head.method == b"POST" and not _is_inference(path := _path(head)) and path not in FREE:
            return Refusal(
                "not_found",
                "a guard forwards inference routes only; use the backend itself",
                "target",
            )
        return None

    def _forwarded(self, head: RequestHead) -> bytes:
        """Return the head with the end-to-end headers; the length of the body is added later."""
        dropped = _OURS | _KEYS if self._credentials else _OURS
        headers = [
            pair
            for pair in without_token(end_to_end(head.headers), self._token)
            if pair[0] not in dropped and b"_" not in pair[0]
        ]
        return b"%b %b HTTP/1.1\r\nhost: %b\r\n%b%b" % (
            head.method, head.target, self._host, header_block(headers), self._credentials
        )  # fmt: skip


def _kind(head: RequestHead) -> RequestKind:
    if head.method == b"POST":
        return "probe" if _path(head) in FREE else "run"
    return "status" if _path(head) == STATUS_PATH else "probe"


def _is_inference(path: bytes) -> bool:
    return path in INFERENCE or path.startswith(BELOW)


def _path(head: RequestHead) -> bytes:
    return head.target.partition(b"?")[0]
