"""Uploads as multipart/form-data: one file streamed to disk, and a few short fields.

At most PIECE_BYTES of the file are in memory; headers, fields and their number are bounded, and
every error names the field. An upload that is not completed leaves nothing behind, whether the
client, the network or a limit ended it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect

from forebay.gateway.errors.http_error import HttpError, invalid
from forebay.jobs.batches.file import FILE_BYTES_MAX, FileTooLarge

if TYPE_CHECKING:
    from starlette.requests import Request

    from forebay.jobs.batches.file_rows import RowsUpload
    from forebay.jobs.batches.files import Files, FolderUpload

PIECE_BYTES = 1024 * 1024
"""Collected before a thread writes it: a thread for each packet would cost more than the disk."""
FIELD_BYTES_MAX = 1024
PARTS_MAX = 16
FILENAME_LENGTH_MAX = 255
FORM_BYTES_MAX = PARTS_MAX * 8192
"""Size of a form without its file: headers of 4 KiB and fields of 1 KiB at most."""
BOUNDARY_BYTES_MAX = 70
"""RFC 2046, 5.1.1."""
PARSE_BYTES = 65_536
"""Fed to the parser at once."""
UPLOAD_S_MAX = 3600.0
"""However slow a client is, an hour is enough."""


class UploadForm:
    """Reads one form."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.fields: dict[str, str] = {}
        self.upload: FolderUpload | RowsUpload | None = None
        self.filename = ""
        self._piece = bytearray()
        self._header = (bytearray(), bytearray())
        self._headers: dict[bytes, bytes] = {}
        self._field = ""
        self._is_file = False
        self._value = bytearray()
        self._parts = 0
        self._ended = False

    async def read(self, request: Request, idle_s: float) -> None:
        """Read the whole form; raises HttpError. `discard` it, unless its file is stored."""
        parser = self._parser(request)
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > FILE_BYTES_MAX + FORM_BYTES_MAX:
            raise _too_large(f"the file is larger than {FILE_BYTES_MAX} bytes")
        try:
            async with asyncio.timeout(UPLOAD_S_MAX) as whole, asyncio.timeout(idle_s) as idle:
                loop = asyncio.get_running_loop()
                async for data in request.stream():
                    idle.reschedule(loop.time() + idle_s)
                    await self._feed(parser, data)
            self._check_whole()
            await self._flush()
        except TimeoutError:
            limit = "an hour" if whole.expired() else f"{idle_s:g} s without a byte"
            raise HttpError("request_timeout", f"the upload was cut off: {limit}") from None
        except ClientDisconnect:
            raise HttpError("request_timeout", "the client left") from None
        except MultipartParseError as error:
            raise invalid(f"the form cannot be read: {error}", "body") from None
        except FileTooLarge as error:
            raise _too_large(str(error)) from None

    def _check_whole(self) -> None:
        if not self._ended:
            raise invalid("the form ends in the middle", "body")
        if not self._is_file:
            raise invalid("the form has no file", "file")

    async def discard(self) -> None:
        """Delete the uploaded data, unless it has been stored."""
        upload, self.upload = self.upload, None
        if upload is not None:
            await asyncio.shield(asyncio.to_thread(upload.discard))

    # -- inside

    async def _feed(self, parser: MultipartParser, data: bytes) -> None:
        for start in range(0, len(data), PARSE_BYTES):
            parser.write(data[start : start + PARSE_BYTES])
            if len(self._piece) >= PIECE_BYTES:
                await self._flush()

    async def _flush(self) -> None:
        if self._is_file and self.upload is None:  # here, since creating it blocks
            self.upload = await asyncio.to_thread(self._files.begin)
        if self._piece and self.upload is not None:
            piece, self._piece = self._piece, bytearray()
            await asyncio.to_thread(self.upload.write, piece)

    def _parser(self, request: Request) -> MultipartParser:
        kind, options = parse_options_header(request.headers.get("content-type", ""))
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data":
            raise invalid("send the file as multipart/form-data", "Content-Type")
        if not 0 < len(boundary) <= BOUNDARY_BYTES_MAX:
            raise invalid("the boundary of the form is missing or too long", "Content-Type")
        return MultipartParser(
            boundary,
            {
                "on_part_begin": self._on_part_begin,
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers_finished,
                "on_part_data": self._on_part_data,
                "on_part_end": self._on_part_end,
                "on_end": self._on_end,
            },
        )

    def _on_part_begin(self) -> None:
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise invalid(f"the form has more than {PARTS_MAX} parts", "body")
        self._headers = {}

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header[0].extend(data[start:end])

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1].extend(data[start:end])

    def _on_header_end(self) -> None:
        name, value = self._header
        self._headers[bytes(name).lower()] = bytes(value)
        self._header = (bytearray(), bytearray())

    def _on_headers_finished(self) -> None:
        kind, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if kind != b"form-data" or not name:
            raise invalid("a part of the form has no name", "body")
        shown = name[:64]
        if name in self.fields or (name == "file" and self._is_file):
            raise invalid(f"{shown} is given twice", shown)
        self._field, self._value = name, bytearray()
        if name == "file":
            if b"filename" not in options:
                raise invalid("file must be a file, with a filename", "file")
            self.filename = _plain(options[b"filename"].decode("utf-8", "replace"))
            self._is_file = True

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._field == "file":
            self._piece += data[start:end]
            return
        self._value += data[start:end]
        if len(self._value) > FIELD_BYTES_MAX:
            shown = self._field[:64]
            raise invalid(f"{shown} is longer than {FIELD_BYTES_MAX} bytes", shown)

    def _on_part_end(self) -> None:
        if self._field != "file":
            self.fields[self._field] = self._value.decode("utf-8", "replace")

    def _on_end(self) -> None:
        self._ended = True


def _plain(filename: str) -> str:
    """Return a file name without folders and control characters; it is never used as a path."""
    last = filename.replace("\\", "/").rpartition("/")[2]
    return "".join(c for c in last if c.isprintable())[:FILENAME_LENGTH_MAX] or "file"


def _too_large(message: str) -> HttpError:
    return HttpError("file_too_large", message, "file")
