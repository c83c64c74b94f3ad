"""Keep a short list of entries in order of arrival."""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.core.entries import Entry

_by_seq = attrgetter("seq")


def insert_by_seq(entries: list[Entry], entry: Entry) -> None:
    """Insert an entry where its sequence number belongs."""
    entries.insert(bisect_left(entries, entry.seq, key=_by_seq), entry)
