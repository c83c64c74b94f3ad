"""The live view of a gateway, read for our own programs; not exported, as it may change."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from forebay.api.events import VERSION, DashboardSnapshot, Hello
from forebay.sdk.errors import SdkError

T = TypeVar("T")


class UnreadableEvent(SdkError):
    """An event does not hold what it should; the text says what is wrong."""


def read_hello(data: str | bytes) -> Hello:
    """Return the first event; raises UnreadableEvent."""
    hello = _read(data, Hello)
    if hello.version != VERSION:
        raise UnreadableEvent(
            f"this gateway speaks version {hello.version} of the live view and this command "
            f"version {VERSION}: install the same forebay on both sides"
        )
    return hello


def read_snapshot(data: str | bytes) -> DashboardSnapshot:
    """Return a picture; raises UnreadableEvent."""
    return _read(data, DashboardSnapshot)


def _read(data: str | bytes, kind: type[T]) -> T:
    try:
        return msgspec.convert(_without_nulls(msgspec.json.decode(data)), kind, strict=False)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise UnreadableEvent(f"an event that cannot be read: {error}") from error


def _without_nulls(value: object) -> object:
    """Return a value in which null is the same as missing: what is not known has its default."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
