"""The reference page of every header: what each means, beside the code that reads and writes it.

A test searches that code for names that are not here, and this page for names that are not there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

PAGE: Final = Path("docs/reference/headers.md")

SENT: Final = {
    "Authorization": "`Bearer KEY`: a gateway key, where keys are configured. It never "
    "reaches a node; without keys it does, unless the node has a key of its own.",
    "x-api-key": "The same, as Anthropic's clients send it. Where several are sent, or one "
    "several times, all must name the same key.",
    "api-key": "The same on paths that begin with `/openai/`, as Azure's clients send it; not read "
    "elsewhere, and never passed on.",
    "X-Forebay-Priority": "The class: `high`, `normal` or `low`, unless `queue.priorities` "
    "names others. Case and blanks are ignored; one that does not exist means `normal`. "
    "Comes before the body's `service_tier`; a key's `max_priority` caps it.",
    "X-Nexus-Priority": "The same under its older name; read where `X-Forebay-Priority` is absent.",
    "X-Forebay-User": "Whom fairness counts the request for: where no key says so (or the "
    "key has `trust_user`) and the body names nobody.",
    "X-Forebay-Session": "Names a conversation of the user; its requests prefer the same node.",
    "X-Forebay-Max-Wait": "Longest wait in seconds; may only shorten "
    "`queue.max_wait_seconds`. `0` means now or not at all. A wait that cannot be met is "
    "refused at once: 429 [`deadline_unreachable`](errors.md#deadline_unreachable).",
    "X-Forebay-Guard-Token": "On `/guard` routes: the token of `guard.token_env`. Gateways send it "
    "to the guards that registered with it; what callers send of it goes no further.",
    "X-Forebay-Hop": "Sent by gateways that share a queue, to each other: the name of the one that "
    "passes on a call for a session or a request which another has. It is not passed on again.",
    "X-Forebay-Client": "Sent by the workers of one gateway to each other, over a socket that "
    "nobody else reaches: the client's address. From a client it means nothing and goes no "
    "further.",
    "X-Request-Id": "An id of the caller's own: up to 128 letters, digits and `._:/+=@-`. "
    "Any other, or one that is in use, is replaced. Sent to the node and echoed.",
    "traceparent": "Passed on, like everything else that is not on this page.",
    "Accept-Language": "Error messages are in Japanese where it prefers `ja`.",
    "Last-Event-ID": "On `/session/{id}/events`: the number of the event seen last; those "
    "after it are sent.",
    "anthropic-version": "Where it is sent, `/v1/models` answers in Anthropic's form.",
    "Content-Type": "`multipart/form-data` on `POST /v1/files`, `/v1/audio/*` and `/v1/images/*`. "
    "On other inference routes `multipart/*` is refused (400 "
    "[`unsupported`](errors.md#unsupported)); everything else is read as JSON.",
    "Content-Disposition": "In the parts of an uploaded form: which field it is, and the "
    "name of its file.",
    "Content-Transfer-Encoding": "In the parts of a form: `model` may not be coded.",
    "Content-Encoding": "`gzip` (or `x-gzip`) on inference routes: the body is inflated, up to "
    "`server.body_max_bytes`. Any other than that and `identity` is refused.",
    "Content-Length": "Bounded by `server.body_max_bytes`.",
    "Transfer-Encoding": "`chunked`, or nothing; never beside `Content-Length`.",
    "Expect": "`100-continue` is answered before the body is read.",
    "Host": "Needed exactly once; which are served is said by `server.allowed_hosts`.",
    "Origin": "Pages of other sites may call only where `server.cors_origins` lists them.",
    "access-control-request-method": "Makes an `OPTIONS` request a preflight.",
    "access-control-request-headers": "Answered as asked, for listed origins.",
    "Upgrade": "An offer of `websocket` is refused; others are ignored.",
}
"""What callers may send, by name."""

GIVEN: Final = {
    "X-Request-Id": (
        "everything relayed, and every error",
        "The id of the request; ask `/v1/queue/{id}` about it while it lasts.",
    ),
    "X-Forebay-Node": (
        "everything that reached a node",
        "The node that answered, or was the last to fail.",
    ),
    "X-Forebay-Model": (
        "the same",
        "The model that ran, where an alias or a fallback chose it.",
    ),
    "X-Queue-Status": (
        "the same",
        "`direct` or `queued`.",
    ),
    "X-Queue-Wait-Ms": (
        "the same",
        "How long it waited, in whole milliseconds; 0 when direct.",
    ),
    "X-Queue-Position": (
        "what was queued",
        "Its place on arrival, from 1.",
    ),
    "X-Estimated-Wait": (
        "what was queued",
        "The wait expected on arrival, in whole seconds; left out while nothing has been measured.",
    ),
    "x-ratelimit-limit-requests": (
        "everything relayed for a key with `requests_per_minute`, and `rate_limited`",
        "How many requests it may start in a minute.",
    ),
    "x-ratelimit-remaining-requests": ("the same", "How many of these are left."),
    "x-ratelimit-reset-requests": (
        "the same",
        "When all are there again if nothing more starts, such as `12s` or `6m0s`.",
    ),
    "x-ratelimit-limit-tokens": (
        "everything relayed for a key with `tokens_per_minute` or `tokens_per_day`, and "
        "`rate_limited`",
        "How many tokens it may use in that time; of two limits, the one that leaves less.",
    ),
    "x-ratelimit-remaining-tokens": (
        "the same",
        "How many of these are left, the estimate for this request taken off.",
    ),
    "x-ratelimit-reset-tokens": ("the same", "When all are there again, written likewise."),
    "X-Forebay-Guard": (
        "502 and 504 that a guard makes itself",
        "Why: its server is gone, too slow, or closed a kept-alive connection.",
    ),
    "Retry-After": (
        "429, 503 and `queue_timeout`",
        "Whole seconds after which to try again: measured, jittered, 1 to 120; for `rate_limited` "
        "exact, and as long as it takes.",
    ),
    "retry-after-ms": (
        "the same",
        "The same in milliseconds.",
    ),
    "x-should-retry": (
        "errors",
        "`true` or `false`; the stock SDKs obey it. See [errors](errors.md).",
    ),
    "WWW-Authenticate": (
        "401",
        "`Bearer`.",
    ),
    "Allow": (
        "405",
        "The methods that the route has.",
    ),
    "Connection": (
        "the last answer of a connection",
        "`close`.",
    ),
    "access-control-allow-origin": (
        "all, for listed origins",
        "The origin; with `vary: Origin`.",
    ),
    "access-control-expose-headers": (
        "all, for listed origins",
        "The headers above that a page may read.",
    ),
    "access-control-allow-methods": (
        "preflights",
        "`GET, POST, DELETE`.",
    ),
    "access-control-allow-headers": (
        "preflights",
        "What was asked for.",
    ),
    "access-control-max-age": (
        "preflights",
        "`600`.",
    ),
    "Vary": (
        "all, for listed origins",
        "`Origin`.",
    ),
    "Cache-Control": ("event streams; the page and its files", "`no-store`; `no-cache`."),
    "X-Accel-Buffering": (
        "event streams",
        "`no`: a proxy in front must pass events on as they come.",
    ),
    "ETag": (
        "the page and its files",
        "Asked for with `If-None-Match`, what has not changed is 304.",
    ),
    "Content-Security-Policy": (
        "the page and its files",
        "Code and looks from here alone, calls to here alone, no markup made of text (Trusted "
        "Types).",
    ),
    "X-Content-Type-Options": ("the page and its files", "`nosniff`."),
    "Referrer-Policy": ("the page and its files", "`no-referrer`."),
    "Cross-Origin-Opener-Policy": ("the page and its files", "`same-origin`."),
    "Cross-Origin-Resource-Policy": ("the page and its files", "`same-origin`."),
}
"""What answers carry, by name: on which of them, and what it means."""

OPENING: Final = """\
---
search:
  boost: 2
---

# Headers: X-Forebay-* and others

<!-- Made from the tables in tools/reference/headers.py, which tests hold against the
source; change the words there, not this page. -->

Names are read in any case. What is not on this page goes to the node as it came, and comes back
from it as it is.

## What callers may send

| Header | Meaning |
| --- | --- |
"""

BETWEEN: Final = """
From a proxy listed in `server.trusted_proxies`, `X-Forwarded-For` says who the client is.
Requests that carry `Forwarded`, `X-Original-Forwarded-For`, `X-Real-IP`, `X-Client-IP`,
`X-Cluster-Client-IP`, `True-Client-IP`, `Via`, `X-Forebay-Hop`, or anything that begins with
`X-Forwarded` (such as `X-Forwarded-Host`), `CF-`, `Fastly-` or `Tailscale-`, are not from this
machine, so without keys they may not use the routes under `/admin`.

## What reaches a node

All of the above is read, not passed on, but for `Content-Type`, `Accept-Language`,
`anthropic-version`, `traceparent` and `X-Request-Id`. Neither are hop-by-hop headers
(`Connection` and what it names, `Keep-Alive`, `Proxy-Authenticate`, `Proxy-Authorization`,
`Proxy-Connection`, `TE`, `Trailer`, `Transfer-Encoding`, `Upgrade`), nor `X-Forwarded-Proto` and
the other forwarding headers. The gateway writes `Host`, `Content-Length`, `Accept-Encoding:
identity` and the node's own key.

A node that a [guard](../guard.md) has registered is told two more, for an engine with a queue of
its own: `X-Forebay-Priority`, the class that counts here, whatever the caller asked for, and
`X-Forebay-User`, whom fairness counts the request for: its first 256 bytes, percent-encoded. What a
caller sends under these names reaches no node.

## What answers carry

| Header | On | Meaning |
| --- | --- | --- |
"""

ENDING: Final = """
A stream that was kept informed while it waited (`queue.keepalive_seconds`) had its headers sent
before a node was chosen: it carries `X-Request-Id`, `X-Queue-Status: queued` and what was
promised on arrival; node and wait come as a comment, `: started node=gpu1 waited_ms=20123`.
Headers of a node that begin with `X-Forebay-`, `X-Queue-`, `X-Estimated-` or `Access-Control-`
are dropped: only the gateway's own can be believed.
"""


def page() -> str:
    """Return what the generated page should hold."""
    sent = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in SENT.items())
    given = "".join(f"| `{name}` | {on} | {meaning} |\n" for name, (on, meaning) in GIVEN.items())
    return f"{OPENING}{sent}{BETWEEN}{given}{ENDING}"
