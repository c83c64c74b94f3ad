"""Keys and usage in `/openapi.json`."""

from __future__ import annotations

from typing import Final

from forebay.api.records import KeyDescription, KeyList, KeyText, NewKey, Usage
from forebay.gateway.openapi.operations import FOR_ADMINS, Operation, query
from forebay.gateway.openapi.schemas import TEXT

_LAST: Final = query("last", {"enum": ["true"]}, "Revokes even the last admin key.")

OPERATIONS: Final = (
    Operation("get", "/admin/keys", "The keys and what they may do, never their text", KeyList,
        FOR_ADMINS),
    Operation("post", "/admin/keys", "Make a key, which is told in this answer only", NewKey,
        (*FOR_ADMINS, "conflict", "store_unavailable", "shutting_down"), 201, KeyDescription),
    Operation("post", "/admin/keys/{name}/renew",
        "Give a key a new text: the old one ends at once, what it made stays its own", NewKey,
        (*FOR_ADMINS, "not_found", "conflict", "store_unavailable", "shutting_down"),
        body=KeyText, needs_body=False),
    Operation("delete", "/admin/keys/{name}",
        "Revoke a key; its waiting requests get 401, what runs may finish",
        codes=(*FOR_ADMINS, "not_found", "conflict", "store_unavailable", "shutting_down"),
        status=204, media="", query=(_LAST,)),
    Operation("get", "/v1/usage", "Requests and tokens by the hour, per key, user and model",
        Usage, (*FOR_ADMINS, "store_unavailable", "shutting_down"),
        other_media="text/csv", query=(
            query("by", {"enum": ["key", "user", "model"]}, "Sums up over the other two."),
            query("from", TEXT, "The first hour: ISO 8601, or seconds since 1970. Default: the "
                "last 24 hours."),
            query("to", TEXT, "The last hour."),
            query("format", {"enum": ["json", "csv"]}, "`csv` answers `text/csv`."),
        )),
)  # fmt: skip
