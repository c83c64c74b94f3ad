"""One head while it comes: llhttp (httptools) reads it up to its empty line, and no further."""

from __future__ import annotations

from typing import Any, Final

import httptools

HEAD_ENDS: Final = b"\r\n\r\n"


class BadHead(Exception):
    """It is not one of HTTP/1.1."""


class HeadTooLarge(Exception):
    """It is larger than it may be."""


class IncomingHead:
    """What has come of a head, and what the parser says of it."""

    __slots__ = ("_bytes_max", "_is_answer", "_is_whole", "_parser", "keeps_alive", "raw", "status")

    def __init__(self, bytes_max: int, *, is_answer: bool) -> None:
        self._bytes_max = bytes_max
        self._is_answer = is_answer
        make = httptools.HttpResponseParser if is_answer else httptools.HttpRequestParser
        self._parser: Any = make(self)
        self._is_whole = False
        self.raw = b""
        """All that has come, perhaps beyond its end."""
        self.keeps_alive = False
        """Whether the connection may be used again after this message."""
        self.status = 0
        """Of an answer."""

    def take(self, data: bytes) -> int:
        """Return where it ends in `raw`, 0 while it does not; raises BadHead, HeadTooLarge."""
        seen = len(self.raw)
        self.raw = raw = self.raw + data if seen else data
        end = raw.find(HEAD_ENDS, max(0, seen - 3)) + 4
        is_whole = end >= 4
        try:
            self._parser.feed_data(raw[seen:end] if is_whole else data)
        except httptools.HttpParserUpgrade as error:  # of a request an offer that we do not take
            if self._is_answer:
                raise BadHead("it wants another protocol") from error
        except httptools.HttpParserError as error:
            raise BadHead(str(error) or "unreadable") from error
        if is_whole and not self._is_whole:
            raise BadHead("its head does not end")
        if (end if is_whole else len(raw)) > self._bytes_max:
            raise HeadTooLarge
        return end if is_whole else 0

    def on_headers_complete(self) -> None:
        """Take note: the parser expects a body now, which is not its affair."""
        self._is_whole = True
        self.keeps_alive = self._parser.should_keep_alive()
        if self._is_answer:
            self.status = self._parser.get_status_code()
