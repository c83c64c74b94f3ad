"""What a request head says about its caller: the key, the user, the priority, the headers to pass.

Clients keep their connections and send the same headers with every request, so one `Caller` serves
all requests of a connection that have the same head; it is read again only when the keys change.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from forebay.core import Arrived, capped_priority, parse_priority
from forebay.gateway.errors.rendering import preferred_language
from forebay.gateway.hot.keys import (
    AZURE_KEYS,
    CREDENTIALS,
    NOT_READ,
    KeyRing,
    presented_secrets,
)
from forebay.relay.openai import OPENAI
from forebay.relay.problem import Problem
from forebay.wire.heads import HOP_BY_HOP, RequestHead, first_of, split_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.gateway.hot.proxies import TrustedProxies
    from forebay.relay.forms import FormReader
    from forebay.settings import ResolvedKey
    from forebay.wire.heads import Headers
    from forebay.wire.hosts import HostGuard

OURS: Final = frozenset(
    b"host content-length content-encoding expect accept-encoding authorization x-api-key api-key"
    b" origin"
    b" x-forebay-priority x-nexus-priority x-forebay-user x-forebay-session x-forebay-max-wait"
    b" x-forebay-guard-token x-forebay-hop x-forebay-client x-request-id"
    b" forwarded x-forwarded-for x-forwarded-host"
    b" x-forwarded-proto x-real-ip".split()
)
"""Headers that are for us, or that we write ourselves; the rest go on to the node."""
DROPPED: Final = OURS | HOP_BY_HOP
READ: Final = DROPPED | {b"accept-language", b"content-type"}
"""Headers that more than `Caller.header_block` is made of."""
REQUEST_ID: Final = b"x-request-id"

EXPOSED = (
    b"x-request-id, x-forebay-node, x-forebay-model, x-queue-status, x-queue-wait-ms,"
    b" x-queue-position, x-estimated-wait, retry-after, retry-after-ms, x-should-retry,"
    b" x-ratelimit-limit-requests, x-ratelimit-limit-tokens,"
    b" x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens,"
    b" x-ratelimit-reset-requests, x-ratelimit-reset-tokens"
)
FORWARDED: Final = b"x-forwarded-for"
AZURE: Final = b"/openai/"
"""Where Azure's clients ask, with a header of their own for the key."""
USER_LENGTH_MAX = 256
SHARED_TENANT: Final = "*"
"""The one tenant of all keys with `share_prefixes`; no owner is called so."""
PROMPT_PREFIX: Final = b"prm_"
"""How ids of prompts begin: one that waits in its session is no request yet, and keeps its id."""
LIST: Final = b"requests"
"""No id: that path of the queue is the list of all."""
_PLAIN_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


class Caller(RequestHead):
    """A request head, and what it says about who calls, how urgently, and for what."""

    __slots__ = (
        "address", "affinity", "answer_block", "coding", "content_type", "credentials", "family",
        "fixed_user", "form", "generation", "header_block", "key", "key_running_max", "language",
        "max_wait_s", "model", "node_target", "owner_id", "payer", "priority", "problem", "reader",
        "request_id", "route", "tenant", "tiers", "user", "weight",
    )  # fmt: skip

    def __init__(
        self, method: bytes, target: bytes, headers: Headers, version: bytes = b"HTTP/1.1"
    ) -> None:
        super().__init__(method, target, headers, version)
        self.generation = -1
        """Of the keys that it was read with; -1 before it was read."""
        self.forget()

    def amend(self, changes: list[tuple[int, bytes]]) -> bool:
        """Take other lines in the place of some that are only passed on, or are the request's id.

        Requests of a connection come one after the other: nobody reads the old lines any more.
        """
        headers = self.headers
        for at, line in changes:
            header = split_line(line)
            name = header[0]
            if name != headers[at - 1][0] or (name in READ and name != REQUEST_ID):
                return False
            headers[at - 1] = header
        self.request_id = plain_id(first_of(headers, REQUEST_ID))
        self.header_block = _passed_on(headers)
        return True

    def forget(self) -> None:
        """Take back everything but the head: it will be read anew."""
        self.family = OPENAI
        self.reader = OPENAI.reader
        self.route = ""
        """What it asks for, as the metrics call it."""
        self.node_target = b""
        """The same with its query, as a node is asked for it."""
        self.model = ""
        """As the path names it; "" where the body does."""
        self.key: ResolvedKey | None = None
        self.owner_id = ""
        """Of its key: what it makes belongs to that id, and the scheduler knows the key by it."""
        self.key_running_max = 0
        self.weight = 1.0
        self.fixed_user = ""
        """The key's user, where nobody else may be named."""
        self.header_block = b""
        self.credentials = b""
        self.language = "en"
        self.priority: str | None = None
        """As the header asks, capped by the key; None when no header is given."""
        self.tiers: dict[str | None, str] = {}
        """The class for each `service_tier` of a body, capped likewise."""
        self.user: str | None = None
        """As the header says; whether it counts is for `user_of` to decide."""
        self.address = ""
        self.payer = ""
        """Whom the bytes of its bodies are counted for: its key's owner, else its address."""
        self.tenant = ""
        """Whose cached prompts it may use, and learn of: its key's, else everybody's."""
        self.affinity = ""
        """The conversation, as the header names it; `conversation_of` says whose it is."""
        self.max_wait_s: float | None = None
        self.request_id = ""
        self.content_type = b""
        self.coding = b""
        """Of the body, in lower case; b"" where it comes as it is."""
        self.form: FormReader | None = None
        """Reads the body, where it is a form and may be one."""
        self.answer_block = b""
        """Headers of every answer to this caller, written out: CORS, where it is on."""
        self.problem: Problem | None = None


class Callers:
    """Reads heads."""

    def __init__(
        self,
        keys: KeyRing,
        hosts: HostGuard,
        proxies: TrustedProxies,
        priorities: Sequence[str],
    ) -> None:
        self._keys = keys
        self._hosts = hosts
        self._proxies = proxies
        self._priorities = priorities
        self._tiers: dict[str, dict[str | None, str]] = {}
        """`Caller.tiers` for each class that keys are capped at."""
        self.generation = 0
        """Rises when the keys change: what was remembered before is void."""

    def read(self, caller: Caller, peer: str) -> None:
        """Read what a head says; `problem` is set where it must be refused."""
        caller.forget()
        values = dict(reversed(caller.headers))  # the first of a name counts
        caller.header_block = _passed_on(caller.headers)
        caller.language = preferred_language(values.get(b"accept-language"))
        caller.affinity = values.get(b"x-forebay-session", b"")[:USER_LENGTH_MAX].decode("latin-1")
        caller.content_type = values.get(b"content-type", b"")
        if b"content-encoding" in values:
            caller.coding = _coding(values[b"content-encoding"])
        caller.answer_block = cors_block(self._hosts.cors_origin(values.get(b"origin")))
        caller.address = self._proxies.client(peer, _hops(caller) if FORWARDED in values else None)
        caller.generation = self.generation
        user = values.get(b"x-forebay-user")
        caller.user = None if user is None else user.decode("utf-8", "replace")
        caller.request_id = plain_id(values.get(REQUEST_ID))
        caller.problem = (
            self._host_problem(values)
            or self._authenticate(caller, values)
            or _read_wait(caller, values.get(b"x-forebay-max-wait"))
        )
        self._read_priority(caller, values)
        caller.payer = caller.owner_id or caller.address

    def user_of(self, caller: Caller, named: str | None) -> str:
        """Return whom fairness counts the request for."""
        key = caller.key
        if key is not None and not key.trust_user:
            return key.user
        name = named or caller.user
        if not name:
            return key.user if key is not None else caller.address
        if len(name) > USER_LENGTH_MAX:  # a bound on memory, not on names
            name = name[:USER_LENGTH_MAX]
        return f"{key.name}/{name}" if key is not None else name

    def priority_of(self, caller: Caller, tier: str | None) -> str:
        """Return the class: the header's, else that of OpenAI's `service_tier`."""
        return caller.priority or caller.tiers.get(tier) or caller.tiers[None]

    def arrival(self, caller: Caller, request_id: str) -> Arrived:
        """Return what is known of a request that is refused before its body is read."""
        return Arrived(
            request_id,
            caller.model,
            caller.family.name,
            user=self.user_of(caller, None),
            priority=self.priority_of(caller, None),
            key=caller.owner_id,
        )

    def _read_priority(self, caller: Caller, values: dict[bytes, bytes]) -> None:
        asked = values.get(b"x-forebay-priority", values.get(b"x-nexus-priority"))
        if asked is not None:
            caller.priority = self._capped(caller, asked[:64].decode("latin-1"))
        cap = "" if caller.key is None else caller.key.max_priority
        if cap not in self._tiers:
            self._tiers[cap] = {tier: self._capped(caller, name) for tier, name in _TIERS.items()}
        caller.tiers = self._tiers[cap]

    def _capped(self, caller: Caller, name: str) -> str:
        priority = parse_priority(name, self._priorities)
        if caller.key is None:
            return priority
        return capped_priority(priority, caller.key.max_priority, self._priorities)

    def _host_problem(self, values: dict[bytes, bytes]) -> Problem | None:
        host = values.get(b"host")
        if not self._hosts.allows_host(host):
            return Problem("forbidden_host", "this Host is not served here", "host")
        if not self._hosts.allows_origin(values.get(b"origin"), host):
            return Problem("forbidden_host", "pages of this Origin may not call", "origin")
        return None

    def _authenticate(self, caller: Caller, values: dict[bytes, bytes]) -> Problem | None:
        headers = caller.headers
        if not self._keys and not self._keys.sealed:
            caller.credentials = b"".join([_written(n, values.get(n)) for n in CREDENTIALS])
            if len(values) == len(headers):  # no header is there twice
                return None
            each = [presented_secrets(headers, (name,)) for name in AZURE_KEYS]
            return _two_secrets() if any(len(secrets) > 1 for secrets in each) else None
        names = AZURE_KEYS if caller.target.startswith(AZURE) else CREDENTIALS
        secrets = presented_secrets(headers, names)
        if len(secrets) > 1:
            return _two_secrets()
        caller.key = self._keys.find(secrets.pop()) if secrets else None
        if caller.key is None:
            if self._keys.sealed:
                return Problem("store_unavailable", NOT_READ)
            return Problem("unauthorized", "a valid API key is needed")
        key = caller.key
        caller.owner_id, caller.key_running_max, caller.weight = (
            key.owner, key.max_running, key.weight
        )  # fmt: skip
        caller.tenant = SHARED_TENANT if key.share_prefixes else caller.owner_id
        caller.fixed_user = "" if key.trust_user else key.user
        return None


def conversation_of(owner: str, user: str, name: str) -> str:
    """Return the name of a conversation as the core knows it: nobody else's has the same.

    >>> conversation_of("team-a", "ann", "talk"), conversation_of("", "ann", "")
    ('team-a/3/ann/talk', '')
    """
    return f"{owner}/{len(user)}/{user}/{name}" if name else ""  # no owner has a slash in it


def plain_id(given: bytes | None) -> str:
    """Return the id that a caller gives its request, "" where it gives none, or none that is plain.

    >>> plain_id(b"order-17"), plain_id(b"two words"), plain_id(LIST), plain_id(None)
    ('order-17', '', '', '')
    """
    if given is None or _PLAIN_ID.fullmatch(given) is None:
        return ""
    if given.startswith(PROMPT_PREFIX) or given == LIST:
        return ""
    return given.decode()


def cors_block(origin: bytes | None) -> bytes:
    """Return what lets a page of that origin read an answer; nothing where CORS is off."""
    if origin is None:
        return b""
    return (
        b"access-control-allow-origin: %b\r\nvary: Origin\r\n"
        b"access-control-expose-headers: %b\r\n" % (origin, EXPOSED)
    )


_TIERS: Final = {"priority": "high", "flex": "low", None: "normal"}
"""OpenAI's `service_tier` in our words; any other is as good as none."""


def _passed_on(headers: Headers) -> bytes:
    """Return the headers that go on to a node, written out."""
    dropped = DROPPED
    for name, value in headers:
        if name == b"connection" and value.lower() not in HOP_BY_HOP:
            dropped = dropped.union(part.strip().lower() for part in value.split(b","))
    passed = [pair for pair in headers if pair[0] not in dropped]
    if b"_" in b"".join([name for name, _ in passed]):  # some servers read X_Real_IP as X-Real-IP
        passed = [pair for pair in passed if b"_" not in pair[0]]
    return b"\r\n".join([b": ".join(pair) for pair in passed] + [b""])


def _hops(caller: Caller) -> bytes:
    """Return the addresses that a request says it came by, of all headers that say so."""
    return b",".join([value for name, value in caller.headers if name == FORWARDED])


def _coding(value: bytes) -> bytes:
    """Return how a body is coded, without what says that it is not.

    >>> _coding(b"Identity"), _coding(b"X-GZIP"), _coding(b"br, gzip")
    (b'', b'gzip', b'br,gzip')
    """
    names = [name.strip() for name in value.lower().split(b",")]
    named = [b"gzip" if name == b"x-gzip" else name for name in names]
    return b",".join(name for name in named if name not in (b"", b"identity"))


def _two_secrets() -> Problem:
    words = "all headers that carry a key must carry the same one"
    return Problem("invalid_request", words, "authorization")


def _written(name: bytes, value: bytes | None) -> bytes:
    return b"" if value is None else b"%b: %b\r\n" % (name, value)


def _read_wait(caller: Caller, value: bytes | None) -> Problem | None:
    if value is None:
        return None
    try:
        seconds = -1.0 if b"_" in value else float(value)  # Python reads 1_0 as ten
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds <= 1e9:  # NaN is neither
        return Problem(
            "invalid_request",
            "X-Forebay-Max-Wait must be a number of seconds, 0 or more",
            "X-Forebay-Max-Wait",
        )
    caller.max_wait_s = seconds
    return None
