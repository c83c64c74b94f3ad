"""The file of a batch: what is plainly wrong with it, and how it travels.

Only the obvious is looked at here, before anything is sent: the gateway checks every line. The file
is never held whole: a form is written around it piece by piece, and its digest is taken of exactly
what was sent.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PIECE_BYTES = 256 * 1024
LINE_BYTES_MAX = 32 * 1024 * 1024


class BadFile(Exception):
    """The file cannot be a batch, or has changed meanwhile; the text says what to do."""


def endpoint_of(file: Path, given: str | None) -> str:
    """Return what the lines of a file ask for, by its first; raises BadFile."""
    try:
        with file.open("rb") as opened:
            first = next((line for line in _lines(opened) if line.strip()), b"")
    except IsADirectoryError:
        raise BadFile(f"{file} is a folder; name a file of JSON lines.") from None
    except OSError as error:
        raise BadFile(f"{file} cannot be read: {error.strerror}.") from None
    if not first:
        raise BadFile(f"{file} is empty: it needs a line of JSON for each request.")
    asked = _url_of(first, file)
    if given is not None and asked != given:
        raise BadFile(f"--endpoint {given}: {file} asks for {asked} in its first line.")
    return asked


def _lines(opened: Any) -> Iterator[bytes]:
    while line := opened.readline(LINE_BYTES_MAX):
        yield line


def _url_of(line: bytes, file: Path) -> str:
    wanted = 'such as {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", '
    wanted += '"body": {"model": ..., "messages": [...]}}'
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise BadFile(f"the first line of {file} is not JSON. Write lines {wanted}.") from None
    for name in ("custom_id", "url"):
        if not isinstance(request, dict) or not isinstance(request.get(name), str):
            raise BadFile(f"the first line of {file} has no {name}. Write lines {wanted}.")
    return str(request["url"])


def digest_of(file: Path) -> tuple[int, str]:
    """Return a file's size and digest; raises BadFile."""
    digest, size = hashlib.sha256(), 0
    try:
        with file.open("rb") as opened:
            while piece := opened.read(PIECE_BYTES):
                digest.update(piece)
                size += len(piece)
    except OSError as error:
        raise BadFile(f"{file} cannot be read: {error.strerror}.") from None
    return size, digest.hexdigest()


class Form:
    """A file as a multipart form, for one upload; `sha256` is of what was sent."""

    def __init__(self, file: Path) -> None:
        self._file = file
        boundary = secrets.token_hex(16)
        self._head = _head(boundary, file.name)
        self._tail = f"\r\n--{boundary}--\r\n".encode()
        self._digest = hashlib.sha256()
        try:
            self.size = file.stat().st_size
        except OSError as error:
            raise BadFile(f"{file} cannot be read: {error.strerror}.") from None
        self.headers = {
            "content-type": f"multipart/form-data; boundary={boundary}",
            "content-length": str(len(self._head) + self.size + len(self._tail)),
        }

    @property
    def sha256(self) -> str:
        """The digest of what was sent of the file."""
        return self._digest.hexdigest()

    def pieces(self, note: Callable[[int], None]) -> Iterator[bytes]:
        """Yield the form, noting the bytes of each piece; raises BadFile if the file has shrunk."""
        yield self._head
        left = self.size
        try:
            with self._file.open("rb") as opened:
                while left:
                    piece = opened.read(min(PIECE_BYTES, left))
                    if not piece:
                        raise BadFile(f"{self._file} got shorter while it was sent. Run it again.")
                    self._digest.update(piece)
                    left -= len(piece)
                    yield piece
                    note(len(piece))
        except OSError as error:
            raise BadFile(f"{self._file} cannot be read: {error.strerror}.") from None
        yield self._tail


def _head(boundary: str, filename: str) -> bytes:
    # As browsers do it: a name may hold anything, its quotes and line ends are escaped.
    for letter, escaped in (('"', "%22"), ("\r", "%0D"), ("\n", "%0A")):
        filename = filename.replace(letter, escaped)
    return (
        f"--{boundary}\r\n"
        'Content-Disposition: form-data; name="purpose"\r\n\r\n'
        "batch\r\n"
        f"--{boundary}\r\n"
        f'Content-Disposition: form-data; name="file"; filename="{filename}"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    ).encode("utf-8", "replace")
