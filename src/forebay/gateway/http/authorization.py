"""Authentication and authorisation for the Starlette routes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.hot.callers import Caller
from forebay.gateway.hot.keys import NOT_READ
from forebay.gateway.hot.proxies import is_forwarded
from forebay.shares import RETRY_AFTER_S
from forebay.wire.hosts import host_name, is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from starlette.requests import Request

    from forebay.gateway.hot.callers import Callers
    from forebay.gateway.hot.keys import KeyRing
    from forebay.shares import Places

OwnerNames: TypeAlias = "Callable[[str], str]"
"""Returns the name under which an owner is shown."""

logger = logging.getLogger("forebay.gateway")


class Authorizer:
    """Identifies the caller of a request and checks what it may do; raises HttpError."""

    def __init__(self, callers: Callers, keys: KeyRing, *, public_status: bool) -> None:
        self._callers = callers
        self._keys = keys
        self._public_status = public_status

    @property
    def needs_keys(self) -> bool:
        return bool(self._keys)

    @property
    def owners(self) -> int:
        """How many owners of keys share the gateway."""
        return self._keys.owners

    def place(self, owner: str, places: Places) -> AbstractContextManager[None]:
        """Return a place of a shared bound, to be entered before the next `await`.

        Raises HttpError where the owner may take none.
        """
        if words := places.refusal(owner, self.owners):
            raise HttpError(places.bound.code, words, retry_after_s=RETRY_AFTER_S)
        return places.held_by(owner)

    def watch(self, may: Callable[[], bool]) -> Callable[[], bool]:
        """Return what says whether a stream may go on: `may` is asked after each change of keys."""
        asked = self._callers.generation

        def still() -> bool:
            nonlocal asked
            before, asked = asked, self._callers.generation
            return before == asked or may()

        return still

    def user_of(self, caller: Caller) -> str:
        """Return the user that a caller's requests are counted for."""
        return self._callers.user_of(caller, None)

    def caller(self, request: Request) -> Caller:
        """Return the caller, who has a valid key where keys are needed."""
        caller = self._read(request)
        if caller.problem is not None:
            raise HttpError.of(caller.problem)
        return caller

    def anyone(self, request: Request) -> Caller:
        """Return the caller; no key is needed, but it must be known which keys there are."""
        caller = self.probe(request)
        if caller.key is None:
            self.check_keys_known()
        return caller

    def probe(self, request: Request) -> Caller:
        """Return the caller, as `anyone`, also while the keys are not known."""
        caller = self._read(request)
        if caller.problem is not None and caller.problem.code == "forbidden_host":
            raise HttpError.of(caller.problem)
        return caller

    def check_keys_known(self) -> None:
        """Raise HttpError while there may be keys that are not known."""
        if self._keys.sealed:
            raise HttpError("store_unavailable", NOT_READ)

    def is_caller(self, request: Request) -> bool:
        try:
            self.caller(request)
        except HttpError:
            return False
        return True

    def observer(self, request: Request) -> Caller:
        """Return who may see aggregates; anyone with `server.public_status`."""
        return self.anyone(request) if self._public_status else self.caller(request)

    def admin(self, request: Request) -> Caller:
        """Return an admin: by key, or without any keys a caller on this machine."""
        caller = self.caller(request)
        if self._keys:
            if caller.key is None or not caller.key.admin:
                raise HttpError("forbidden", "this needs an admin key")
        elif not _is_at_this_machine(request):
            raise HttpError("forbidden", "without keys, admin routes are for this machine only")
        return caller

    def is_in_force(self, owner: str) -> bool:
        """Say whether an owner has a key; nobody needs none."""
        return self._keys.is_in_force(owner)

    def name_of(self, owner: str) -> str:
        """Return the name under which an owner is shown."""
        return self._keys.name_of(owner)

    def names_for(self, owner: str | None) -> OwnerNames | None:
        """Return what names owners to a caller who sees those of `owner`: for admins only."""
        return self.name_of if owner is None else None

    def is_admin(self, request: Request) -> bool:
        try:
            self.admin(request)
        except HttpError:
            return False
        return True

    def _read(self, request: Request) -> Caller:
        path = request.url.path.encode()
        caller = Caller(request.method.encode(), path, list(request.headers.raw))
        self._callers.read(caller, request.client.host if request.client else "")
        request.state.body_owner = caller.payer
        return caller


def seen_by(caller: Caller) -> str | None:
    """Return whose jobs and sessions a caller sees; None is everyone's."""
    if caller.key is None:
        return ""
    return None if caller.key.admin else caller.owner_id


def log_admin_action(action: str, caller: Caller, owner: str, subject_id: object) -> None:
    """Log what was done to something of another key: only an admin can."""
    if owner != caller.owner_id:
        extra = {"id": subject_id, "owner": owner, "by": name_of(caller)}
        logger.info("%s by an admin", action, extra=extra)


def name_of(caller: Caller) -> str:
    """Return an admin's name for the log."""
    return caller.key.name if caller.key is not None else "a caller on this machine"


def _is_at_this_machine(request: Request) -> bool:
    """Say whether the peer is local, asks for a local name, and is no proxy."""
    peer = request.client.host if request.client else ""
    return (
        is_loopback(peer)
        and is_loopback(host_name(request.headers.get("host", "")))
        and not is_forwarded(request.headers.raw)
        and _is_own_page(request)
    )


def _is_own_page(request: Request) -> bool:
    """Say whether this is no page of another origin, not even one that CORS allows."""
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("host", "")
