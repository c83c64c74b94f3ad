"""The body of a request while it arrives."""

from __future__ import annotations

from io import BytesIO
from typing import Final

LARGE_BYTES: Final = 262_144
"""From here on a body grows in one buffer: joining 30 MiB at the end would take 15 ms at once."""
PIECES_MAX: Final = 100_000
"""Pieces one body may come in; 10^6 chunks of one byte are an attack on our CPU."""


class RequestBody:
    """Collects pieces; small ones are kept as they are, large bodies grow in place."""

    __slots__ = ("_large", "_parts", "_pieces", "large_bytes", "size_bytes")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._large: BytesIO | None = None
        self._pieces = 0
        self.size_bytes = 0
        self.large_bytes = 0
        """What counts against the bound of the whole server: nothing while it is small."""

    def add(self, data: bytes, bytes_max: int) -> bool:
        """Take a piece; False when the body is larger, or in more pieces, than it may be."""
        self._pieces += 1
        self.size_bytes += len(data)
        if self._large is not None:
            self._large.write(data)
            self.large_bytes = self.size_bytes
        else:
            self._parts.append(data)
            if self.size_bytes > LARGE_BYTES:
                self._large = BytesIO()
                self._large.writelines(self._parts)
                self._parts = []
                self.large_bytes = self.size_bytes
        return self.size_bytes <= bytes_max and self._pieces <= PIECES_MAX

    def take(self) -> bytes:
        """Return the whole body and be empty again; a large one is not copied."""
        parts, large = self._parts, self._large
        if self._pieces:
            self.clear()
        if large is not None:
            return large.getvalue()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def clear(self) -> None:
        """Forget what has come."""
        self._parts, self._large = [], None
        self._pieces = self.size_bytes = self.large_bytes = 0
