"""Who is asking: API keys, hashed and compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from forebay.settings import ResolvedKey
    from forebay.wire.heads import Headers

CREDENTIALS: Final = (b"authorization", b"x-api-key")
AZURE_KEYS: Final = (*CREDENTIALS, b"api-key")  # the last one counts on Azure's paths only


NOT_READ = "the keys in this gateway's database are not known; its log says why"


class KeyRing:
    """The keys that are valid now. With none, everyone may ask, unless it is sealed."""

    def __init__(self, keys: Iterable[ResolvedKey], *, sealed: bool = False) -> None:
        self.sealed = sealed
        """Whether there may be keys that are not known yet: only those known are let in."""
        self.change(keys)

    def change(self, keys: Iterable[ResolvedKey], names: Mapping[str, str] = {}) -> set[str]:
        """Take over other keys; return the owners of those that are revoked.

        Another text in the settings revokes the old key; one made at run time is renewed by it.
        `names` are those by which owners are shown, also of keys that are gone.
        """
        before: dict[str, ResolvedKey] = getattr(self, "_by_owner", {})
        self._names = names
        self._by_digest = {key.sha256: key for key in keys}
        self._by_owner = {key.owner: key for key in self._by_digest.values()}
        return {owner for owner, key in before.items() if not self._goes_on(key)}

    def _goes_on(self, key: ResolvedKey) -> bool:
        now = self._by_owner.get(key.owner)
        return now is not None and (now.sha256 == key.sha256 or key.owner != key.name)

    def __bool__(self) -> bool:
        return bool(self._by_digest)

    @property
    def owners(self) -> int:
        """How many owners have a key: so many share what has one bound for all."""
        return len(self._by_owner)

    def __iter__(self) -> Iterator[ResolvedKey]:
        return iter(self._by_digest.values())

    def named(self, name: str) -> ResolvedKey | None:
        return next((key for key in self._by_digest.values() if key.name == name), None)

    def name_of(self, owner: str) -> str:
        """Return the name under which an owner is shown: that of its key."""
        return self._names.get(owner, owner)

    def of_owner(self, owner: str) -> ResolvedKey | None:
        """Return the key of an owner, for work that it left behind."""
        return self._by_owner.get(owner)

    def is_in_force(self, owner: str) -> bool:
        """Say whether work may start in an owner's name; nobody's always may."""
        return not owner or owner in self._by_owner

    def find(self, secret: bytes) -> ResolvedKey | None:
        """Return the key with that text.

        What is looked up is a digest, of which a caller cannot choose the beginning, and the last
        comparison takes the same time wherever it differs.
        """
        digest = hashlib.sha256(secret).hexdigest()
        key = self._by_digest.get(digest)
        if key is None or not hmac.compare_digest(key.sha256, digest):
            return None
        return key


def presented_secrets(headers: Headers, names: tuple[bytes, ...]) -> set[bytes]:
    """Return the secrets that all headers of those names present; more than one is an error.

    A proxy that checks one header, or the first of several lines, must not be fooled by another.
    Keys in the query are not read; they end up in logs.
    """
    return {_secret(name, value) for name, value in headers if name in names}


def _secret(name: bytes, value: bytes) -> bytes:
    """Return a bearer token, or what a header of its own holds; of any other scheme, no key."""
    if name != b"authorization":
        return value
    scheme, _, token = value.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b"authorization: " + value
