"""Keys and usage in `/openapi.json`."""

from __future__ import annotations

from typing import Final

from forebay.gateway.openapi.operations import FOR_ADMINS, Operation, query
from forebay.gateway.openapi.schemas import (
    BOOLEAN,
    COUNT,
    TEXT,
    TEXT_OR_NULL,
    Schema,
    closed,
    listed,
    record,
    reference,
    said,
)

_LAST: Final = query("last", {"enum": ["true"]}, "Revokes even the last admin key.")

OPERATIONS: Final = (
    Operation("get", "/admin/keys", "The keys and what they may do, never their text", "KeyList",
        FOR_ADMINS),
    Operation("post", "/admin/keys", "Make a key, which is told in this answer only", "NewKey",
        (*FOR_ADMINS, "conflict", "store_unavailable", "shutting_down"), 201, "KeyDescription"),
    Operation("post", "/admin/keys/{name}/renew",
        "Give a key a new text: the old one ends at once, what it made stays its own", "NewKey",
        (*FOR_ADMINS, "not_found", "conflict", "store_unavailable", "shutting_down"),
        body="KeyText", needs_body=False),
    Operation("delete", "/admin/keys/{name}",
        "Revoke a key; its waiting requests get 401, what runs may finish",
        codes=(*FOR_ADMINS, "not_found", "conflict", "store_unavailable", "shutting_down"),
        status=204, media="", query=(_LAST,)),
    Operation("get", "/v1/usage", "Requests and tokens by the hour, per key, user and model",
        "Usage", (*FOR_ADMINS, "store_unavailable", "shutting_down"),
        other_media="text/csv", query=(
            query("by", {"enum": ["key", "user", "model"]}, "Sums up over the other two."),
            query("from", TEXT, "The first hour: ISO 8601, or seconds since 1970. Default: the "
                "last 24 hours."),
            query("to", TEXT, "The last hour."),
            query("format", {"enum": ["json", "csv"]}, "`csv` answers `text/csv`."),
        )),
)  # fmt: skip

_WEIGHT: Final = {"type": "number", "minimum": 0.001, "maximum": 1_000}
_KEY: Final[dict[str, Schema]] = {
    "name": TEXT,
    "origin": said("`settings` for a block of the settings file, which is read-only here; "
        "`unreadable` for one in the database that is switched off because it cannot be read.",
        {"enum": ["settings", "made", "unreadable"]}),
    "user": TEXT,
    "trust_user": BOOLEAN,
    "max_priority": TEXT,
    "models": said("Empty is all.", listed(TEXT)),
    "max_running": said("0 is no limit.", COUNT),
    "requests_per_minute": said("0 is no limit; more wait for their turn.", COUNT),
    "tokens_per_minute": said("0 is no limit; more wait for their turn.", COUNT),
    "tokens_per_day": said("0 is no limit; the day ends at 00:00 UTC.", COUNT),
    "weight": _WEIGHT,
    "share_prefixes": said("Whether it uses the cached prompts of other keys that have it, too.",
        BOOLEAN),
    "admin": BOOLEAN,
    "created_at": TEXT_OR_NULL,
    "created_by": said("The key that made it; empty for a caller on the gateway's machine.",
        TEXT_OR_NULL),
}  # fmt: skip

_DIGEST: Final[dict[str, Schema]] = {
    "key_sha256?": said(
        "SHA-256 of the key's text, for callers who make that themselves; left out, the "
        "gateway makes one and answers with it.",
        {"type": "string", "pattern": "^[0-9a-fA-F]{64}$"}),
}  # fmt: skip

SCHEMAS: Final[dict[str, Schema]] = {
    "KeyText": closed(_DIGEST),
    "Usage": record({"data": listed(record({
        "hour": said("Its beginning.", {"type": "string", "format": "date-time"}),
        "key": said("Null where `by` sums up over it; empty for a request without a key.",
            TEXT_OR_NULL),
        "user": TEXT_OR_NULL,
        "model": said("Empty for requests that never ran.", TEXT_OR_NULL),
        "requests": COUNT,
        "prompt_tokens": COUNT,
        "output_tokens": COUNT,
    }))}),
    "KeyDescription": closed({
        "name": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
        **_DIGEST,
        "user?": TEXT,
        "trust_user?": BOOLEAN,
        "max_priority?": TEXT,
        "models?": listed({"type": "string", "minLength": 1}),
        "max_running?": COUNT,
        "requests_per_minute?": COUNT,
        "tokens_per_minute?": COUNT,
        "tokens_per_day?": COUNT,
        "weight?": _WEIGHT,
        "share_prefixes?": BOOLEAN,
        "admin?": said("The first key of a gateway without keys must be one.", BOOLEAN),
    }),
    "NewKey": record({
        **_KEY, "key?": said("Its text, now and never again.", TEXT),
    }),
    "Key": record(_KEY),
    "KeyList": record({"data": listed(reference("Key"))}),
}  # fmt: skip
