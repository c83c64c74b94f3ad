"""`/admin/keys`: API keys that are listed, made and revoked while the gateway runs."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.responses import Response
from starlette.routing import Route

from forebay.api.fields import OMITTED
from forebay.api.records import Key, KeyList, NewKey
from forebay.gateway.errors.http_error import HttpError, invalid, invalid_settings
from forebay.gateway.http.authorization import name_of
from forebay.gateway.http.json_body import decode_body
from forebay.gateway.routes.json_answer import json_answer
from forebay.records.keys import KeyRecord, new_owner
from forebay.settings import KeySettings, SettingsError, digest_of, parse_key

if TYPE_CHECKING:
    from starlette.requests import Request

    from forebay.gateway.hot.callers import Caller
    from forebay.gateway.hot.keys import KeyRing
    from forebay.gateway.http.authorization import Authorizer
    from forebay.gateway.http.json_body import RequestReader
    from forebay.gateway.live_settings import LiveSettings
    from forebay.gateway.records.service import RecordService

logger = logging.getLogger("forebay.gateway")

K = TypeVar("K", bound=Key)

BODY_BYTES_MAX: Final = 65_536
KEY_BYTES: Final = 32
"""256 bits: nobody guesses them, so a plain SHA-256 is enough to keep them by."""
KEYS_MAX: Final = 1000
"""Keys in the database: each is looked at when one changes, and has its own row in the metrics."""
SECRET: Final = {"name", "key_env", "key_sha256"}
"""What a key's settings are kept and shown without."""


@dataclass(frozen=True)
class KeyRoutes:
    """Only digests are stored; the text of a key is only in the response to its creation."""

    authorizer: Authorizer
    reader: RequestReader
    records: RecordService
    ring: KeyRing
    settings: LiveSettings

    def routes(self) -> list[Route]:
        return [
            Route("/admin/keys", self.listed),
            Route("/admin/keys", self.make, methods=["POST"]),
            Route("/admin/keys/{name}", self.revoke, methods=["DELETE"]),
            Route("/admin/keys/{name}/renew", self.renew, methods=["POST"]),
        ]

    async def listed(self, request: Request) -> Response:
        self.authorizer.admin(request)
        shown = [_shown(key) for key in self.settings.current.keys]
        names, keys = {key.name for key in shown}, self.records.keys
        made = [
            _made(Key, key, "unreadable" if key.name in keys.unreadable else "made")
            for key in keys.table.keys
            if key.name not in names
        ]
        return json_answer(KeyList(shown + made))

    async def make(self, request: Request) -> Response:
        caller = self.authorizer.admin(request)
        given = await self.reader.decode(request, BODY_BYTES_MAX, dict[str, Any])
        secret = _with_secret(given)
        key = self._checked(given)
        kept = key.model_dump(mode="json", exclude=SECRET, exclude_defaults=True)
        maker, now_s = "" if caller.key is None else caller.key.name, self.records.now()
        record = KeyRecord(key.name, key.key_sha256, kept, now_s, maker, new_owner())
        if not await self.records.add_key(record):
            raise HttpError("conflict", "there is already a key with that name or text", "name")
        _log("key made", key.name, caller)
        return _answer(record, secret, 201)

    async def renew(self, request: Request) -> Response:
        """Give a key a new text: the old one ends at once, what it made stays its own."""
        caller, name = self.authorizer.admin(request), self._changeable(request)
        body = await self.reader.read(request, BODY_BYTES_MAX)
        given = await decode_body(body or b"{}", dict[str, Any])
        if unknown := given.keys() - {"key_sha256"}:
            raise invalid("a key that is renewed keeps its settings", min(unknown))
        secret = _with_secret(given)
        record = self.records.keys.named(name)
        if record is None or record.settings is None:
            raise HttpError("not_found", "there is no key with that name", "name")
        digest = self._parsed({**record.settings, "name": name, **given}).key_sha256
        if any(key.sha256 == digest for key in self.ring):
            raise HttpError("conflict", "there is already a key with that text", "key_sha256")
        if not await self.records.renew_key(name, digest):
            raise HttpError("not_found", "there is no key with that name", "name")
        _log("key renewed", name, caller)
        return _answer(record, secret, 200)

    async def revoke(self, request: Request) -> Response:
        """Delete a key; its waiting requests get 401, what runs may finish."""
        caller = self.authorizer.admin(request)
        name = self._changeable(request)
        key = self.ring.named(name)
        if key is not None and key.admin and request.query_params.get("last") != "true":
            self._check_not_last(name)
        # PostgreSQL's texts cannot hold every character, not even to be looked for.
        if not name.isprintable() or not await self.records.remove_key(name):
            raise HttpError("not_found", "there is no key with that name", "name")
        _log("key revoked", name, caller)
        return Response(status_code=204)

    def _changeable(self, request: Request) -> str:
        """Return the name of the key that a request is to change, which is not in the settings."""
        name = str(request.path_params["name"])
        if any(key.name == name for key in self.settings.current.keys):
            words = "this key is in the settings file: change its block there, and reload"
            raise HttpError("conflict", words, "name")
        return name

    def _parsed(self, given: dict[str, Any]) -> KeySettings:
        if given.get("key_env"):
            raise invalid("environment variables can be named only in the settings file", "key_env")
        try:
            return parse_key(given)
        except SettingsError as error:
            raise invalid_settings(error) from None

    def _checked(self, given: dict[str, Any]) -> KeySettings:
        key = self._parsed(given)
        settings = self.settings.current
        if key.max_priority not in settings.queue.priorities:
            known = ", ".join(settings.queue.priorities)
            raise invalid(f"max_priority is one of queue.priorities: {known}", "max_priority")
        if not self.ring and not key.admin:
            words = "the first key must be an admin key: without one, nobody could create another"
            raise invalid(words, "admin")
        if self.ring.named(key.name) is not None:
            raise HttpError("conflict", "there is already a key with that name", "name")
        if len(self.records.keys.table.keys) >= KEYS_MAX:
            raise HttpError("conflict", f"there are {KEYS_MAX} keys already; revoke some")
        return key

    def _check_not_last(self, name: str) -> None:
        if any(key.admin and key.name != name for key in self.ring):
            return
        others = any(key.name != name for key in self.ring)
        then = "nobody could create keys" if others else "everyone may use this gateway"
        words = (
            f"this is the last admin key: without it, {then}; `forebay keys revoke NAME --last` "
            "(?last=true) revokes it anyway"
        )
        raise HttpError("conflict", words, "name")


def new_key() -> str:
    """Return the text of a new key."""
    return f"fb-{secrets.token_urlsafe(KEY_BYTES)}"


def _with_secret(given: dict[str, Any]) -> str:
    """Return the text of a key, "" where the caller gives its digest and keeps the text."""
    if given.get("key_sha256"):
        return ""
    secret = new_key()
    given["key_sha256"] = digest_of(secret)
    return secret


def _answer(record: KeyRecord, secret: str, status: int) -> Response:
    answer = json_answer(_made(NewKey, record, "made", key=secret or OMITTED), status)
    answer.headers["cache-control"] = "no-store"
    return answer


def _log(action: str, name: str, caller: Caller) -> None:
    logger.info(action, extra={"key": name, "by": name_of(caller)})


def _shown(key: KeySettings) -> Key:
    allowed = key.model_dump(mode="json", exclude=SECRET)
    return Key(key.name, "settings", **{**allowed, "user": key.user or key.name})


def _made(kind: type[K], record: KeyRecord, origin: str, **more: Any) -> K:
    made_at = datetime.fromtimestamp(record.created_at, UTC).isoformat(timespec="seconds")
    fields = KeySettings.model_fields.items()
    defaults = {field: about.default for field, about in fields if field not in SECRET}
    allowed = {**defaults, **(record.settings or {})}
    return kind(
        record.name,
        origin,
        **{**allowed, "user": allowed["user"] or record.name},
        created_at=made_at.replace("+00:00", "Z"),
        created_by=record.created_by,
        **more,
    )
