"""Keys in `/openapi.json`."""

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
    Operation("delete", "/admin/keys/{name}",
        "Revoke a key; its waiting requests get 401, what runs may finish",
        codes=(*FOR_ADMINS, "not_found", "conflict", "store_unavailable", "shutting_down"),
        status=204, media="", query=(_LAST,)),
)  # fmt: skip

_WEIGHT: Final = {"type": "number", "minimum": 0.000001, "maximum": 1_000_000}
_KEY: Final[dict[str, Schema]] = {
    "name": TEXT,
    "origin": said("`settings` for a block of the settings file, which is read-only here.",
        {"enum": ["settings", "made"]}),
    "user": TEXT,
    "trust_user": BOOLEAN,
    "max_priority": TEXT,
    "models": said("Empty is all.", listed(TEXT)),
    "max_running": said("0 is no limit.", COUNT),
    "weight": _WEIGHT,
    "admin": BOOLEAN,
    "created_at": TEXT_OR_NULL,
    "created_by": said("The key that made it; empty for a caller on the gateway's machine.",
        TEXT_OR_NULL),
}  # fmt: skip

SCHEMAS: Final[dict[str, Schema]] = {
    "KeyDescription": closed({
        "name": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
        "key_sha256?": said(
            "SHA-256 of the key's text, for callers who make that themselves; left out, the "
            "gateway makes one and answers with it.",
            {"type": "string", "pattern": "^[0-9a-fA-F]{64}$"}),
        "user?": TEXT,
        "trust_user?": BOOLEAN,
        "max_priority?": TEXT,
        "models?": listed({"type": "string", "minLength": 1}),
        "max_running?": COUNT,
        "weight?": _WEIGHT,
        "admin?": said("The first key of a gateway without keys must be one.", BOOLEAN),
    }),
    "NewKey": record({
        **_KEY, "key?": said("Its text, now and never again.", TEXT),
    }),
    "Key": record(_KEY),
    "KeyList": record({"data": listed(reference("Key"))}),
}  # fmt: skip
