"""The steps of a batch: upload, create, follow, fetch; each taken up where it was left.

What could happen twice is what costs: an upload, and above all a batch. So each answer is written
down beside the file before the next step; and a creation whose answer was lost is looked for at the
gateway, by the file that only it can have, before another is asked for.

Of the file only the obvious is looked at here, before anything is sent: the gateway checks every
line. It is never held whole, and its digest is of exactly what was sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from forebay.sdk import Batch, GatewayError
from forebay.sdk.batches import (
    POLL_GROWTH,
    POLL_S,
    POLL_S_MAX,
    UPLOAD_S,
    BatchList,
    UploadedFile,
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
PIECE_BYTES = 256 * 1024
LINE_BYTES_MAX = 32 * 1024 * 1024
NAME_LENGTH_MAX = 256
STATE_SUFFIX = ".forebay"


# -- the state, beside the file


class EndedBatch(Struct, frozen=True):
    """How a batch ended, and where its answers are."""

    status: str
    total: int
    completed: int
    failed: int
    output: str | None
    """Path, relative to where the command ran."""
    errors: str | None


class BatchState(Struct, frozen=True, kw_only=True):
    """The stored state of a file's batch, so that the same command can continue it."""

    url: str
    """The gateway that has it."""
    size: int
    """Of the file that was uploaded, in bytes."""
    sha256: str
    endpoint: str
    file_id: str
    batch_id: str | None = None
    """None between the upload and the answer to the creation."""
    ended: EndedBatch | None = None


class StateBroken(Exception):
    """The state is there, but cannot be read; the text says what to do."""


def load_state(path: Path) -> BatchState | None:
    """Return what is remembered, if anything; raises StateBroken."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=BatchState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise StateBroken(
            f"{path} cannot be read ({error}). Remove it to start again; a batch that still "
            "runs is then no longer known."
        ) from None


def save_state(path: Path, state: BatchState) -> None:
    """Remember; what was there is replaced only when the new is safe on the disk."""
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


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


class HashedFile(io.FileIO):
    """A file that is read once: `size` at the beginning, `sha256` of what was read."""

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
        self._digest = hashlib.sha256()

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next piece; raises BadFile where the file has got shorter."""
        wanted = self._left if size is None or size < 0 else min(size, self._left)
        try:
            piece = super().read(wanted) or b""
        except OSError as error:
            raise _unreadable(self._file, error) from None
        if wanted and not piece:
            raise BadFile(f"{self._file} got shorter while it was sent. Run it again.")
        self._digest.update(piece)
        self._left -= len(piece)
        self.note(len(piece))
        return piece

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def digest_of(file: Path) -> tuple[int, str]:
    """Return a file's size and digest; raises BadFile."""
    with HashedFile(file) as opened:
        while opened.read(PIECE_BYTES):
            pass
        return opened.size, opened.sha256


def _unreadable(file: Path, error: OSError) -> BadFile:
    return BadFile(f"{file} cannot be read: {error.strerror}.")


# -- the steps


class BatchOutputs(NamedTuple):
    """Where the answers go."""

    output: Path
    errors: Path
    errors_are_ours: bool
    """Whether `errors` is the usual name, so that one of an earlier run may be removed."""


class BatchRun:
    """One file's batch at one gateway. Raises SdkError throughout."""

    def __init__(
        self, file: Path, client: GatewayClient, retry: OutageRetry, progress: BatchProgressBar
    ) -> None:
        """Raises StateBroken."""
        self._file = file
        self._client = client
        self._retry = retry
        self._progress = progress
        self._path = file.with_name(file.name + STATE_SUFFIX)
        self.state = load_state(self._path)

    def is_unchanged(self) -> bool:
        """Say whether the file is the one that was uploaded; raises BadFile."""
        assert self.state is not None
        return digest_of(self._file) == (self.state.size, self.state.sha256)

    def forget(self) -> None:
        """Remember nothing of this file any more."""
        self.state = None
        self._path.unlink(missing_ok=True)

    def upload(self, endpoint: str) -> None:
        """Send the file; raises BadFile."""
        with HashedFile(self._file) as file, self._progress.uploading(file.size) as file.note:
            upload = FileUpload(self._file.name, file)
            call = ApiCall("POST", "/v1/files", upload=upload, read_s=UPLOAD_S)
            answer = self._client.run(lambda http: http.ask(call, UploadedFile))
        self._remember(
            BatchState(
                url=self._client.url,
                size=file.size,
                sha256=file.sha256,
                endpoint=endpoint,
                file_id=answer.id,
            )
        )

    def create(self, window: str) -> None:
        """Start the batch, once."""
        assert self.state is not None
        body = {
            "input_file_id": self.state.file_id,
            "endpoint": self.state.endpoint,
            "completion_window": window,
            "metadata": {"file": self._file.name[:NAME_LENGTH_MAX]},
        }
        batch = self._client.ask("POST", "/v1/batches", Batch, body).value
        self._remember(replace(self.state, batch_id=batch.id))

    def find(self) -> bool:
        """Look for a batch whose creation was not answered, and say whether there is one."""
        assert self.state is not None
        for batch in self._client.ask("GET", "/v1/batches?limit=100", BatchList).value.data:
            if batch.input_file_id == self.state.file_id:
                self._remember(replace(self.state, batch_id=batch.id))
                return True
        return False

    def cancel(self) -> bool:
        """Ask for the batch's end; False where it has ended already."""
        try:
            self._client.ask("POST", f"{self._batch_path()}/cancel", object)
        except GatewayError as refused:
            if refused.status != 409:
                raise
            return False
        return True

    def follow(self) -> Batch:
        path = self._batch_path()
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

    def fetch(self, batch: Batch, outputs: BatchOutputs) -> EndedBatch:
        """Download what the batch left, and remember that it is here."""
        assert self.state is not None
        written: list[str | None] = []
        for file_id, path in (
            (batch.output_file_id, outputs.output),
            (batch.error_file_id, outputs.errors),
        ):
            if file_id is not None:
                self._download(file_id, path)
            written.append(None if file_id is None else str(path))
        if batch.error_file_id is None and outputs.errors_are_ours:
            outputs.errors.unlink(missing_ok=True)
        counts = batch.request_counts
        ended = EndedBatch(batch.status, counts.total, counts.completed, counts.failed, *written)
        self._remember(replace(self.state, ended=ended))
        return ended

    def _batch_path(self) -> str:
        assert self.state is not None
        return f"/v1/batches/{quote(self.state.batch_id or '', safe='')}"

    def _remember(self, state: BatchState) -> None:
        try:
            save_state(self._path, state)
        except OSError as error:
            raise BadFile(f"{self._path} cannot be written: {error.strerror}.") from None
        self.state = state

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
