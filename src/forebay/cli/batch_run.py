"""The steps of a batch: upload, create, follow, fetch; each taken up where it was left.

What could happen twice is what costs: an upload, and above all a batch. So each answer is written
down before the next step; and a creation whose answer was lost is looked for at the gateway, by the
file that only it can have, before another is asked for.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from forebay.cli import batch_state
from forebay.cli.batch_input import BadFile, Form, digest_of
from forebay.cli.batch_state import BatchState, Ended
from forebay.cli.gateway_client import GatewayAway, GatewayRefused, Reply
from forebay.cli.shapes import Anything, Batch, Batches, BatchInList, UploadedFile

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.cli.batch_progress import View
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
        self._path = batch_state.state_path(file)
        self.state = batch_state.load(self._path)

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
            batch_state.save(self._path, state)
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
