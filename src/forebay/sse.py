"""Server-sent events: bytes in; lines, or events and comments out. Bounded, and does no I/O.

`SseLines` is for those who want each `data:` line as it comes (nodes do not all end their events
with an empty line); `SseParser` joins the lines to events as the HTML standard has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENT_BYTES_MAX = 16 * 1024 * 1024
"""One event: the last of a session's turn holds its whole text."""
CR = 13


class BadStream(ValueError):
    """A line or an event is too long, or is not text."""


class SseLines:
    """Cuts bytes into lines, which end in `\\n`, `\\r\\n` or `\\r`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._rest = bytearray()

    @property
    def pending_bytes(self) -> int:
        """How much has come of a line that is not complete."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that this completes; raises BadStream for one that is too long."""
        before = len(self._rest)
        self._rest += data
        # A `\r` at the very end may be half of `\r\n`: what follows it decides. Only the new bytes
        # are searched, so that a long line costs no more than its length.
        end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
        if end:
            end += before
        elif data and before and self._rest[before - 1] == CR:
            end = before
        lines = bytes(self._rest[:end]).splitlines() if end else []
        del self._rest[:end]
        if len(self._rest) > self._bytes_max:
            raise BadStream(f"a line of more than {self._bytes_max:,} bytes")
        return lines

    def end(self) -> bytes:
        """Return what has come of the last line."""
        rest, self._rest = bytes(self._rest), bytearray()
        return rest.removesuffix(b"\r")


class SseEvent(NamedTuple):
    """One event."""

    event: str
    data: str
    id: str


class SseComment(NamedTuple):
    """A line that begins with a colon: a heartbeat, or a queue position."""

    text: str


class SseParser:
    """Cuts bytes into events; what is incomplete at the end is not one."""

    def __init__(self, bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lines = SseLines(bytes_max)
        self._held_bytes = 0
        """Of the event that is being read."""
        self._event = self._id = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> Iterator[SseEvent | SseComment]:
        """Yield what this completes; raises BadStream."""
        for line in self._lines.feed(data):
            self._held_bytes += len(line)
            self._check_size(0)
            found = self._take(line)
            if found is not None:
                yield found
        self._check_size(self._lines.pending_bytes)

    def _check_size(self, pending_bytes: int) -> None:
        if self._held_bytes + pending_bytes > self._bytes_max:
            raise BadStream(f"an event of more than {self._bytes_max:,} bytes")

    def _take(self, line: bytes) -> SseEvent | SseComment | None:
        if not line:
            return self._dispatched()
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise BadStream("an event that is not UTF-8") from None
        if text.startswith(":"):
            self._held_bytes -= len(line)
            return SseComment(text[1:].strip())
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

    def _dispatched(self) -> SseEvent | None:
        event = SseEvent(self._event, "\n".join(self._data), self._id) if self._data else None
        self._event, self._id, self._data, self._held_bytes = "", "", [], 0
        return event
