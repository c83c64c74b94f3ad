"""`forebay batch` from what was typed to the exit status: begin, follow, and sum up."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import msgspec
import typer
from msgspec import Struct

from forebay.cli.batch.progress import BatchProgressBar
from forebay.cli.batch.run import BadFile, download, endpoint_of, unreadable
from forebay.cli.exits import FAILED, INTERRUPTED, NOT_REACHABLE, USAGE
from forebay.cli.gateway import GatewayClient, say_outage
from forebay.cli.invocation import at_gateway
from forebay.cli.output.console import fail, say, tell, tell_json
from forebay.cli.output.text import printable, short
from forebay.clock import SystemClock
from forebay.sdk import BadAnswer, GatewayAway, SdkError
from forebay.sdk.batches import create_batch, follow_batch, upload_file

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.cli.batch.run import BatchOutputs
    from forebay.sdk import Batch
    from forebay.sdk.transport import Transport

NAME_LENGTH_MAX = 256
OUTCOMES = {
    "completed": "is completed",
    "expired": "has expired",
    "cancelled": "was cancelled",
}


class NewBatch(NamedTuple):
    """A batch that is to be made."""

    file: Path
    endpoint: str | None
    window: str


class BatchFault(Struct):
    """What is wrong with the file, as the gateway says it."""

    code: str
    message: str
    line: int | None = None


def run_batch(
    batch: NewBatch | str, outputs: BatchOutputs, client: GatewayClient, *, as_json: bool
) -> NoReturn:
    """Make a batch, or take up the one of this id; every way it may go wrong says how to go on."""
    session = BatchSession(batch, outputs, client, as_json=as_json)
    try:
        outputs.check()
        if isinstance(batch, NewBatch):
            session.begin(batch)
        session.finish()
    except KeyboardInterrupt:
        say(f"\n{session.how_to_go_on()}")
        raise typer.Exit(INTERRUPTED) from None
    except BadFile as bad:
        fail(str(bad), code=USAGE)
    except SdkError as error:
        if isinstance(error, GatewayAway | BadAnswer):
            fail(f"{client.explain(error)}\n{session.how_to_go_on()}", code=NOT_REACHABLE)
        client.give_up(error)


class BatchSession:
    """One call of the command."""

    def __init__(
        self, batch: NewBatch | str, outputs: BatchOutputs, client: GatewayClient, *, as_json: bool
    ) -> None:
        self._client = client
        self._outputs = outputs
        self._as_json = as_json
        self._file_id: str | None = None
        self._batch_id = batch if isinstance(batch, str) else None
        self._name = batch if isinstance(batch, str) else str(batch.file)
        """What the user calls it."""

    def begin(self, batch: NewBatch) -> None:
        """Upload the file and make its batch."""
        endpoint = endpoint_of(batch.file, batch.endpoint)
        name = batch.file.name
        try:
            with batch.file.open("rb") as file:
                self._file_id = self._client.run(lambda http: upload_file(http, name, file))
        except OSError as error:
            raise unreadable(batch.file, error) from None
        say(f"Uploaded {batch.file} to {self._client.url}.")
        self._batch_id = self._client.run(lambda http: self._create(http, endpoint, batch)).id
        say(f"Batch {printable(self._batch_id)} is created. Ctrl-C leaves it running.")

    async def _create(self, http: Transport, endpoint: str, batch: NewBatch) -> Batch:
        assert self._file_id is not None
        about = {"file": batch.file.name[:NAME_LENGTH_MAX]}
        return await create_batch(http, self._file_id, endpoint, batch.window, metadata=about)

    def finish(self) -> NoReturn:
        """Follow the batch to its end, fetch what it left, and exit as it went."""
        found = self._client.run(self._follow)
        if found.status == "failed":
            self._tell_faults(found)
        self._sum_up(
            found,
            self._fetch(found.output_file_id, self._outputs.output),
            self._fetch(found.error_file_id, self._outputs.errors),
        )

    async def _follow(self, http: Transport) -> Batch:
        assert self._batch_id is not None
        progress = BatchProgressBar(SystemClock())
        with progress.running():
            return await follow_batch(http, self._batch_id, progress.update, say_outage)

    def _fetch(self, file_id: str | None, path: Path) -> str | None:
        """Download one file that the batch left, if it did, and return its path."""
        if file_id is None:
            return None
        self._client.run(lambda http: download(http, file_id, path, say_outage))
        return str(path)

    def how_to_go_on(self) -> str:
        """Return what can be done about a batch that was left."""
        if self._batch_id is not None:
            output, errors = (quote(str(path)) for path in self._outputs)
            to = f"--out {output} --errors {errors}"
            return (
                f"Batch {self._batch_id} continues at {self._client.url}. Follow it and fetch its "
                f"answers: {at_gateway(f'batch follow {self._batch_id} {to}')}\n"
                f"End it: {at_gateway(f'batch cancel {self._batch_id}')}"
            )
        if self._file_id is not None:
            return (
                f"The file is uploaded as {self._file_id}. Whether its batch was created is shown "
                f"by: {at_gateway('batch list')}"
            )
        return "Nothing was created. Run the same command again to start."

    def _sum_up(self, batch: Batch, output: str | None, errors: str | None) -> NoReturn:
        """Say how it went, and exit accordingly."""
        counts = batch.request_counts
        if self._as_json:
            shown = {
                "batch_id": batch.id,
                "status": batch.status,
                "request_counts": msgspec.structs.asdict(counts),
                "output": output,
                "errors": errors,
            }
            tell_json(shown)
        else:
            took_s = _took_s(batch)
            took = "" if took_s is None else f" in {short(took_s)}"
            words = "failed" if batch.status == "completed" else "failed or did not run"
            failed = f", {counts.failed:,} {words}" if counts.failed else ""
            outcome = OUTCOMES.get(batch.status, printable(batch.status))
            tell(
                f"Batch {printable(batch.id)} {outcome}{took}: "
                f"{counts.completed:,} of {counts.total:,} lines answered{failed}."
            )
            for words, path in (("Answers", output), ("Failed lines", errors)):
                if path is not None:
                    tell(f"{words}: {path}")
        raise typer.Exit(0 if batch.status == "completed" and not counts.failed else FAILED)

    def _tell_faults(self, batch: Batch) -> NoReturn:
        """Say what is wrong with the file, line by line."""
        raw = [] if batch.errors is None else batch.errors["data"]
        try:
            faults = msgspec.convert(raw, list[BatchFault])
        except msgspec.ValidationError as error:
            raise BadAnswer(
                f"the answer cannot be parsed: {error}; is this a Forebay gateway?"
            ) from error
        if self._as_json:
            tell_json({"batch_id": batch.id, "status": "failed", "faults": raw})
        for fault in faults:
            line = "" if fault.line is None else f":{fault.line}"
            say(f"{self._name}{line}: {printable(fault.message)} ({printable(fault.code)})")
        fail(
            f"{self._name} was refused, and nothing has run. Correct the file and run the same "
            "command again."
        )


def _took_s(batch: Batch) -> float | None:
    began = batch.in_progress_at
    ended = batch.completed_at or batch.failed_at or batch.expired_at or batch.cancelled_at
    return None if began is None or ended is None else ended - began
