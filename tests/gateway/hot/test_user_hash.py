"""Users in the access log: told apart, told again after a restart, and named nowhere."""

from __future__ import annotations

import stat
from functools import partial
from typing import TYPE_CHECKING

from forebay.gateway.hot.user_hash import KEY_FILE, KNOWN_MAX, UserHashes, load_key

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


KEY = b"k" * 16


def test_users_are_told_apart_and_only_with_the_key_told_again() -> None:
    one, same, other = UserHashes(lambda: KEY), UserHashes(lambda: KEY), UserHashes(lambda: None)
    assert one.of("alice") == same.of("alice") != one.of("bob")
    assert other.of("alice") != one.of("alice")
    assert one.of("") == ""
    assert one.of("half a letter \ud800")


def test_more_users_than_are_kept_get_the_same_hashes_again() -> None:
    hashes = UserHashes()
    first = hashes.of("alice")
    for number in range(KNOWN_MAX + 1):
        hashes.of(f"user {number}")
    assert hashes.of("alice") == first


def test_the_key_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    key = load_key(tmp_path)
    assert key is not None
    assert load_key(tmp_path) == key
    [file] = tmp_path.iterdir()
    assert (file.name, stat.S_IMODE(file.stat().st_mode)) == (KEY_FILE, 0o600)


def test_no_key_is_made_before_there_is_a_user(tmp_path: Path) -> None:
    hashes = UserHashes(partial(load_key, tmp_path))
    assert hashes.of("") == ""
    assert not list(tmp_path.iterdir())
    again = UserHashes(partial(load_key, tmp_path))
    assert hashes.of("alice") == again.of("alice")


def test_a_key_that_cannot_be_kept_or_is_broken_is_said_and_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert load_key(None) is None
    assert load_key(tmp_path / "nowhere") is None
    (tmp_path / KEY_FILE).write_bytes(b"short")
    assert load_key(tmp_path) is None
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
