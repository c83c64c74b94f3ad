"""Server-sent events: bytes in, frames and comments out. Bounded, and knows no network.

Lines end in `\\n` or `\\r\\n`; a lone `\\r`, which the specification would allow, is not looked
for, as neither the gateway nor any node sends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from forebay.sdk.errors import BadAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENT_BYTES_MAX = 16 * 1024 * 1024
"""One event: the last of a turn holds its whole text."""


class Frame(NamedTuple):
    """One event."""

    event: str
    data: str
    id: str


class Comment(NamedTuple):
    """A line that begins with a colon: a heartbeat, or news from the line."""

    text: str


class EventStream:
    """Cuts a stream of bytes into events; a broken piece at the end is not one."""

    def __init__(self, bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._rest = b""
        self._held = 0
        """Bytes in the event that is being read."""
        self._event = self._id = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[Frame | Comment]:
        """Yield what this piece completes; raises BadAnswer for what is too long or no text."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._held += len(line)
            if self._held > self._bytes_max:
                break
            found = self._take(line.removesuffix(b"\r"))
            if found is not None:
                yield found
        if self._held + len(self._rest) > self._bytes_max:
            raise BadAnswer(f"an event of more than {self._bytes_max:,} bytes")

    def _take(self, line: bytes) -> Frame | Comment | None:
        if not line:
            return self._dispatched()
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise BadAnswer("an event that is not UTF-8") from None
        if text.startswith(":"):
            self._held -= len(line)
            return Comment(text[1:].strip())
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._event = value
            case "data":
                self._data.append(value)
            case "id" if "\0" not in value:
                self._id = value
        return None

    def _dispatched(self) -> Frame | None:
        frame = Frame(self._event, "\n".join(self._data), self._id) if self._data else None
        self._event, self._id, self._data, self._held = "", "", [], 0
        return frame
