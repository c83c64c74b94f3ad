"""The steps of a batch: upload, create, follow, fetch; each taken up where it was left.

What could happen twice is what costs: an upload, and above all a batch. So each answer is written
down before the next step; and a creation whose answer was lost is looked for at the gateway, by the
file that only it can have, before another is asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from forebay.cli.gateway_client import GatewayAway, GatewayRefused, Reply
from forebay.cli.shapes import Anything, Batch, Batches, BatchInList, UploadedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from forebay.cli.batch.progress import View
    from forebay.cli.gateway_client import GatewayClient
    from forebay.cli.patience import Patience

FINAL = ("completed", "failed", "expired", "cancelled")
POLL_S, POLL_S_MAX, POLL_GROWTH = 1.0, 5.0, 1.25
POLL_HEADER = "openai-poll-after-ms"
UPLOAD_LIMIT_S = 300.0
"""One wait for the network: uploads may stand in line at the gateway, and disks sync."""
DOWNLOAD_LIMIT_S = 60.0
PIECE_BYTES = 256 * 1024
NAME_LENGTH_MAX = 256
LINE_BYTES_MAX = 32 * 1024 * 1024
SUFFIX = ".forebay"


class Targets(NamedTuple):
    """Where the answers go."""

    output: Path
    errors: Path
    errors_are_ours: bool
    """Whether `errors` is the usual name, so that one of an earlier run may be removed."""


class BatchRun:
    """One file's batch at one gateway. Raises GatewayRefused and GatewayAway throughout."""

    def __init__(self, file: Path, client: GatewayClient, patience: Patience, view: View) -> None:
        self._file = file
        self._client = client
        self._patience = patience
        self._view = view
        self._path = state_path(file)
        self.state = load(self._path)

    # -- what there is

    def is_unchanged(self) -> bool:
        """Say whether the file is the one that was uploaded; raises BadFile."""
        assert self.state is not None
        return digest_of(self._file) == (self.state.size, self.state.sha256)

    def forget(self) -> None:
        """Remember nothing of this file any more."""
        self.state = None
        self._path.unlink(missing_ok=True)

    # -- the steps

    def upload(self, endpoint: str) -> None:
        """Send the file; raises BadFile."""
        form = Form(self._file)
        with self._view.uploading(form.size) as note:
            opened = self._client.opened(
                "POST", "/v1/files", form.pieces(note), form.headers, UPLOAD_LIMIT_S
            )
            with opened as reply:
                answer = self._client.read_answer(reply, "/v1/files", UploadedFile).value
        self._remember(
            BatchState(
                url=self._client.url,
                size=form.size,
                sha256=form.sha256,
                endpoint=endpoint,
                file_id=answer["id"],
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
        batch = self._client.attempt("POST", "/v1/batches", body, shape=BatchInList).value
        self._remember(replace(self.state, batch_id=batch["id"]))

    def find(self) -> bool:
        """Look for a batch whose creation was not answered, and say whether there is one."""
        assert self.state is not None
        listed = self._client.attempt("GET", "/v1/batches?limit=100", shape=Batches).value["data"]
        for batch in listed:
            if batch["input_file_id"] == self.state.file_id:
                self._remember(replace(self.state, batch_id=batch["id"]))
                return True
        return False

    def cancel(self) -> bool:
        """Ask for the batch's end; False where it has ended already."""
        assert self.state is not None
        try:
            path = f"/v1/batches/{self.state.batch_id}/cancel"
            self._client.attempt("POST", path, shape=Anything)
        except GatewayRefused as refused:
            if refused.status != 409:
                raise
            return False
        return True

    def follow(self) -> dict[str, Any]:
        """Return the batch when it has ended."""
        assert self.state is not None
        path = f"/v1/batches/{self.state.batch_id}"
        pause_s = POLL_S
        with self._view.running():
            while True:
                answer = self._patience.until_answered(
                    lambda: self._client.attempt("GET", path, shape=Batch)
                )
                batch: dict[str, Any] = answer.value
                self._view.update(batch)
                if batch["status"] in FINAL:
                    return batch
                asked_s = _asked_s(answer.headers.get(POLL_HEADER))
                self._patience.wait(pause_s if asked_s is None else asked_s)
                pause_s = min(pause_s * POLL_GROWTH, POLL_S_MAX)

    def fetch(self, batch: dict[str, Any], targets: Targets) -> Ended:
        """Download what the batch left, and remember that it is here."""
        assert self.state is not None
        written: list[str | None] = []
        for file_id, path in (
            (batch["output_file_id"], targets.output),
            (batch["error_file_id"], targets.errors),
        ):
            if file_id is not None:
                self._download(file_id, path)
            written.append(None if file_id is None else str(path))
        if batch["error_file_id"] is None and targets.errors_are_ours:
            targets.errors.unlink(missing_ok=True)
        counts = batch["request_counts"]
        ended = Ended(
            batch["status"], counts["total"], counts["completed"], counts["failed"], *written
        )
        self._remember(replace(self.state, ended=ended))
        return ended

    # -- inside

    def _remember(self, state: BatchState) -> None:
        try:
            save(self._path, state)
        except OSError as error:
            raise BadFile(f"{self._path} cannot be written: {error.strerror}.") from None
        self.state = state

    def _download(self, file_id: str, path: Path) -> None:
        part = path.with_name(path.name + ".part")
        try:
            self._patience.until_answered(lambda: self._fill(part, file_id))
            part.replace(path)
        except OSError as error:
            raise BadFile(f"{path} cannot be written: {error.strerror}.") from None
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    def _fill(self, part: Path, file_id: str) -> None:
        opened = self._client.opened(
            "GET", f"/v1/files/{file_id}/content", limit_s=DOWNLOAD_LIMIT_S
        )
        with opened as reply, part.open("wb") as file:
            size = 0
            while piece := reply.read(PIECE_BYTES):
                file.write(piece)
                size += len(piece)
            self._check_whole(reply, size)

    def _check_whole(self, reply: Reply, size: int) -> None:
        """Raise GatewayAway if the answer was cut off: a short read looks like an end."""
        length = reply.headers.get("content-length")
        if length is not None and length.isdigit() and int(length) != size:
            raise GatewayAway(f"the gateway at {self._client.url} cut a file off.")


def _asked_s(header: str | None) -> float | None:
    """Return how long the gateway wants us to wait.

    >>> _asked_s("250"), _asked_s(None), _asked_s("soon"), _asked_s("9999999")
    (0.25, None, None, 60.0)
    """
    if header is None or not (header.isascii() and header.isdigit() and len(header) < 10):
        return None
    return min(int(header) / 1000, 60.0)


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


class Ended(Struct, frozen=True):
    """How a batch ended, and where its answers are."""

    status: str
    total: int
    completed: int
    failed: int
    output: str | None
    """Path, relative to where the command ran."""
    errors: str | None


class BatchState(Struct, frozen=True, kw_only=True):
    """A file's batch."""

    url: str
    """The gateway that has it."""
    size: int
    """Of the file that was uploaded, in bytes."""
    sha256: str
    endpoint: str
    file_id: str
    batch_id: str | None = None
    """None between the upload and the answer to the creation."""
    ended: Ended | None = None


class StateBroken(Exception):
    """The state is there, but cannot be read; the text says what to do."""


def state_path(file: Path) -> Path:
    """Return where a file's state is kept: beside it, with `.forebay` at the end."""
    return file.with_name(file.name + SUFFIX)


def load(path: Path) -> BatchState | None:
    """Return what is remembered, if anything; raises StateBroken."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=BatchState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise StateBroken(
            f"{path} cannot be read ({error}). Remove it to begin anew; "
            "a batch that still runs is then forgotten."
        ) from None


def save(path: Path, state: BatchState) -> None:
    """Remember; what was there is replaced only when the new is safe on the disk."""
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
