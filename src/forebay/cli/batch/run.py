"""The steps of a batch: upload, create, follow, fetch.

Of the file only the obvious is looked at here, before anything is sent: the gateway checks every
line. It is never held whole.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from forebay.api.batches import File
from forebay.sdk import Batch
from forebay.sdk.batches import (
    POLL_GROWTH,
    POLL_S,
    POLL_S_MAX,
    UPLOAD_S,
    poll_after_s,
)
from forebay.sdk.transport import ApiCall, FileUpload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from forebay.cli.batch.progress import BatchProgressBar
    from forebay.cli.gateway import GatewayClient, OutageRetry
    from forebay.sdk.transport import Transport

DOWNLOAD_LIMIT_S = 60.0
"""One wait for the network."""
LINE_BYTES_MAX = 32 * 1024 * 1024
NAME_LENGTH_MAX = 256


# -- the file


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
        raise _unreadable(file, error) from None
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


class SentFile(io.FileIO):
    """A file as long as it is when it is opened, however it grows meanwhile."""

    def __init__(self, file: Path) -> None:
        """Raises BadFile."""
        self._file = file
        self.note: Callable[[int], object] = lambda _: None
        """Called with the bytes of each piece."""
        try:
            super().__init__(file)
            self.size = os.fstat(self.fileno()).st_size
        except OSError as error:
            raise _unreadable(file, error) from None
        self._left = self.size

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next piece; raises BadFile where the file has got shorter."""
        wanted = self._left if size is None or size < 0 else min(size, self._left)
        try:
            piece = super().read(wanted) or b""
        except OSError as error:
            raise _unreadable(self._file, error) from None
        if wanted and not piece:
            raise BadFile(f"{self._file} got shorter while it was sent. Run it again.")
        self._left -= len(piece)
        self.note(len(piece))
        return piece


def _unreadable(file: Path, error: OSError) -> BadFile:
    return BadFile(f"{file} cannot be read: {error.strerror}.")


# -- the steps


class BatchOutputs(NamedTuple):
    """Where the answers go."""

    output: Path
    errors: Path

    def check(self) -> None:
        """See that nothing is overwritten that another run, or another program, has left."""
        for path, option in ((self.output, "--out"), (self.errors, "--errors")):
            if path.exists():
                raise BadFile(f"{path} exists. Name another file with {option}, or move it away.")
            if not path.parent.is_dir():
                raise BadFile(f"{option} {path}: its folder does not exist. Create it first.")


class BatchSteps:
    """What is asked of one gateway. Raises SdkError throughout."""

    def __init__(
        self, client: GatewayClient, retry: OutageRetry, progress: BatchProgressBar
    ) -> None:
        self._client = client
        self._retry = retry
        self._progress = progress

    def upload(self, path: Path) -> File:
        """Send the file; raises BadFile."""
        with SentFile(path) as file, self._progress.uploading(file.size) as file.note:
            upload = FileUpload(path.name, file)
            call = ApiCall("POST", "/v1/files", upload=upload, read_s=UPLOAD_S)
            return self._client.run(lambda http: http.ask(call, File))

    def create(self, file_id: str, file_name: str, endpoint: str, window: str) -> Batch:
        """Start the batch."""
        body = {
            "input_file_id": file_id,
            "endpoint": endpoint,
            "completion_window": window,
            "metadata": {"file": file_name[:NAME_LENGTH_MAX]},
        }
        return self._client.ask("POST", "/v1/batches", Batch, body).value

    def follow(self, batch_id: str) -> Batch:
        """Return the batch when it has ended."""
        path = f"/v1/batches/{quote(batch_id, safe='')}"
        pause_s = POLL_S
        with self._progress.running():
            while True:
                reply = self._retry.until_answered(lambda: self._client.ask("GET", path, Batch))
                self._progress.update(reply.value)
                if reply.value.ended:
                    return reply.value
                asked_s = poll_after_s(reply.headers)
                self._retry.wait(pause_s if asked_s is None else asked_s)
                pause_s = min(pause_s * POLL_GROWTH, POLL_S_MAX)

    def fetch(self, file_id: str | None, path: Path) -> str | None:
        """Download one file that the batch left, if it did, and return its path."""
        if file_id is None:
            return None
        self._download(file_id, path)
        return str(path)

    def _download(self, file_id: str, path: Path) -> None:
        part = path.with_name(path.name + ".part")
        call = ApiCall(
            "GET", f"/v1/files/{quote(file_id, safe='')}/content", read_s=DOWNLOAD_LIMIT_S
        )

        async def fill(http: Transport) -> None:
            async with http.opened(call) as response, aclosing(http.pieces(response)) as pieces:
                with part.open("wb") as file:
                    async for piece in pieces:
                        file.write(piece)

        try:
            self._retry.until_answered(lambda: self._client.run(fill))
            part.replace(path)
        except OSError as error:
            raise BadFile(f"{path} cannot be written: {error.strerror}.") from None
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
