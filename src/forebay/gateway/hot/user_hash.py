"""Users in the access log: a keyed hash, so that one user's lines can be told from another's.

Without the key nobody can try out names, which a plain hash would allow. The key is made once and
kept beside the database; whoever deletes it makes old and new lines strangers to each other.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("forebay.gateway")

KEY_BYTES: Final = 16
DIGEST_BYTES: Final = 8
KEY_FILE: Final = "forebay.user-hash.key"
KNOWN_MAX: Final = 10_000
"""Users whose hashes are kept; beyond that they are computed again, a microsecond each."""


class UserHashes:
    """The hash of each user. Belongs to the thread that writes the log."""

    def __init__(self, read_key: Callable[[], bytes | None] | None = None) -> None:
        """The key is read when the first user comes; where there is none, one is made up."""
        self._read_key = read_key
        self._key = b""
        self._known: dict[str, str] = {"": ""}

    def of(self, user: str) -> str:
        found = self._known.get(user)
        if found is None:
            if len(self._known) >= KNOWN_MAX:
                self._known = {"": ""}
            if not self._key:
                kept = self._read_key() if self._read_key is not None else None
                self._key = kept or secrets.token_bytes(KEY_BYTES)
            text = user.encode(errors="surrogatepass")
            found = blake2b(text, key=self._key, digest_size=DIGEST_BYTES).hexdigest()
            self._known[user] = found
        return found


def data_folder(database: str, files_folder: str) -> Path | None:
    """Return where the gateway keeps files; None where all of its data is elsewhere.

    >>> data_folder("sqlite:///data/forebay.db", ""), data_folder("postgresql://host/name", "")
    (PosixPath('data'), None)
    """
    if files_folder:
        return Path(files_folder)
    scheme, mark, rest = database.partition(":///")
    path = rest.partition("?")[0]
    if not (scheme.startswith("sqlite") and mark and path) or path.startswith(":"):
        return None
    return Path(path).parent


def load_key(folder: Path | None) -> bytes | None:
    """Return the key kept in that folder, made where there is none; None where that fails."""
    if folder is None:
        return None
    path = folder / KEY_FILE
    try:
        if not path.exists():
            _make_key(path)
        key = path.read_bytes()
    except OSError as error:
        logger.warning(
            "the key of user_hash cannot be kept: hashes last until the gateway stops",
            extra={"file": str(path), "reason": error.strerror},
        )
        return None
    if len(key) == KEY_BYTES:
        return key
    logger.warning("the key of user_hash is broken: delete the file", extra={"file": str(path)})
    return None


def _make_key(path: Path) -> None:
    """Write a new key; of several processes that do, one wins, and no one sees half a key."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, secrets.token_bytes(KEY_BYTES))
    finally:
        os.close(file)
    try:
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
