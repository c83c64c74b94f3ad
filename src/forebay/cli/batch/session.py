"""`forebay batch` from what was typed to the exit status: begin, go on, cancel, and sum up."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

import msgspec
import typer
from msgspec import Struct

from forebay.cli.batch.progress import BatchProgressBar
from forebay.cli.batch.run import BadFile, BatchRun, StateBroken, endpoint_of
from forebay.cli.exits import FAILED, INTERRUPTED, NOT_REACHABLE, USAGE
from forebay.cli.gateway import GatewayClient, OutageRetry
from forebay.cli.output.console import fail, say, tell, tell_json
from forebay.cli.output.text import printable, short
from forebay.clock import SystemClock
from forebay.sdk import BadAnswer, GatewayAway, GatewayError, SdkError

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.cli.batch.run import BatchOutputs, BatchState, EndedBatch
    from forebay.sdk import Batch

OUTCOMES = {
    "completed": "is completed",
    "expired": "has expired",
    "cancelled": "was cancelled",
}


class BatchOptions(NamedTuple):
    """What was typed."""

    file: Path
    outputs: BatchOutputs
    endpoint: str | None
    window: str
    cancel: bool
    restart: bool
    as_json: bool


class BatchFault(Struct):
    """What is wrong with the file, as the gateway says it."""

    code: str
    message: str
    line: int | None = None


def run_batch(options: BatchOptions, url: str | None, key_env: str) -> NoReturn:
    """Do what was asked; every way it may go wrong says how to go on."""
    client = GatewayClient(url, key_env)
    progress = BatchProgressBar(SystemClock())
    try:
        run = BatchRun(options.file, client, OutageRetry(SystemClock(), progress.say), progress)
    except StateBroken as broken:
        fail(str(broken), code=USAGE)
    session = BatchSession(run, options, client)
    try:
        if options.cancel:
            session.cancel()
        else:
            session.begin()
        session.finish()
    except KeyboardInterrupt:
        say(f"\n{session.how_to_go_on()}")
        raise typer.Exit(INTERRUPTED) from None
    except BadFile as bad:
        fail(str(bad), code=USAGE)
    except SdkError as error:
        session.give_up(error)


class BatchSession:
    """One call of the command."""

    def __init__(self, run: BatchRun, options: BatchOptions, client: GatewayClient) -> None:
        self._run = run
        self._options = options
        self._client = client
        self._file = options.file

    @property
    def _state(self) -> BatchState:
        assert self._run.state is not None
        return self._run.state

    # -- to begin

    def begin(self) -> None:
        """Bring the batch to where it runs, by as few steps as are left."""
        run = self._run
        endpoint = endpoint_of(self._file, self._options.endpoint)
        if self._options.restart:
            self._drop()
        elif run.state is not None:
            self._check_resumable()
        else:
            self._check_outputs()
        if run.state is None:
            run.upload(endpoint)
            say(f"Uploaded {self._file} ({self._state.size:,} bytes) to {self._client.url}.")
        elif run.state.batch_id is None and run.find():
            say("The batch exists already; continuing with it.")
        if self._state.batch_id is None:
            run.create(self._options.window)
            say(f"Batch {self._state.batch_id} is created. Ctrl-C leaves it running.")
        elif self._state.ended is None:
            say(f"Continuing with batch {self._state.batch_id}.")

    def cancel(self) -> None:
        run = self._run
        if run.state is None:
            fail(f"no batch of {self._file} is known here: there is nothing to cancel.", code=USAGE)
        self._check_place()
        if run.state.batch_id is None and not run.find():
            run.forget()
            fail(f"no batch of {self._file} was created: there is nothing to cancel.", code=USAGE)
        if self._state.ended is None and not run.cancel():
            say(f"Batch {self._state.batch_id} has already ended; fetching its answers.")

    def _drop(self) -> None:
        """Forget an earlier batch; one that still runs is ended, as nobody would fetch it."""
        state = self._run.state
        if state is None:
            return
        if state.batch_id is not None and state.ended is None:
            if state.url != self._client.url:
                say(f"Batch {state.batch_id} at {state.url} is left as it is.")
            else:
                try:
                    if self._run.cancel():
                        say(f"Batch {state.batch_id} of before is cancelled.")
                except GatewayError as refused:
                    if refused.status != 404:
                        raise
        self._run.forget()

    def _check_resumable(self) -> None:
        self._check_place()
        if not self._run.is_unchanged():
            fail(
                f"{self._file} has changed since its batch was created. --restart starts again "
                "with the present file; --cancel ends the batch and fetches the completed answers.",
                code=USAGE,
            )

    def _check_place(self) -> None:
        here, there = self._client.url, self._state.url
        if there != here and self._state.ended is None:
            fail(
                f"the batch of {self._file} is at {there}, not at {here}. "
                f"Add --url {there}. Or --restart starts again at {here}.",
                code=USAGE,
            )

    def _check_outputs(self) -> None:
        """See that nothing is overwritten that another run, or another program, has left."""
        outputs = self._options.outputs
        for path, option in ((outputs.output, "--out"), (outputs.errors, "--errors")):
            if path.exists():
                fail(
                    f"{path} exists, and was not written by a known batch. Name another file "
                    f"with {option}, or move it away; --restart overwrites it.",
                    code=USAGE,
                )
            if not path.parent.is_dir():
                fail(f"{option} {path}: its folder does not exist. Create it first.", code=USAGE)

    # -- to end

    def finish(self) -> NoReturn:
        """Follow the batch to its end, fetch what it left, and exit as it went."""
        state, outputs = self._state, self._options.outputs
        if state.ended is not None and _is_here(state.ended, outputs):
            if not self._options.as_json:
                say(f"Batch {state.batch_id} has already ended; --restart runs {self._file} again.")
            self._sum_up(state.ended, None)
        found = self._run.follow()
        if found.status == "failed":
            self._tell_faults(found)
        self._sum_up(self._run.fetch(found, outputs), _took_s(found))

    def _sum_up(self, ended: EndedBatch, took_s: float | None) -> NoReturn:
        """Say how it went, and exit accordingly."""
        batch_id = self._state.batch_id
        if self._options.as_json:
            counts = {"total": ended.total, "completed": ended.completed, "failed": ended.failed}
            shown = {
                "batch_id": batch_id,
                "status": ended.status,
                "request_counts": counts,
                "output": ended.output,
                "errors": ended.errors,
            }
            tell_json(shown)
        else:
            took = "" if took_s is None else f" in {short(took_s)}"
            words = "failed" if ended.status == "completed" else "failed or did not run"
            failed = f", {ended.failed:,} {words}" if ended.failed else ""
            outcome = OUTCOMES.get(ended.status, printable(ended.status))
            tell(
                f"Batch {batch_id} {outcome}{took}: "
                f"{ended.completed:,} of {ended.total:,} lines answered{failed}."
            )
            for words, path in (("Answers", ended.output), ("Failed lines", ended.errors)):
                if path is not None:
                    tell(f"{words}: {path}")
        all_good = ended.status == "completed" and not ended.failed
        as_asked = self._options.cancel and ended.status == "cancelled"
        raise typer.Exit(0 if all_good or as_asked else FAILED)

    def _tell_faults(self, batch: Batch) -> NoReturn:
        """Say what is wrong with the file, line by line; nothing has run, so nothing is kept."""
        raw = (batch.errors or {}).get("data") or []
        try:
            faults = msgspec.convert(raw, list[BatchFault])
        except msgspec.ValidationError as error:
            raise BadAnswer(
                f"the answer cannot be parsed: {error}; is this a Forebay gateway?"
            ) from error
        if self._options.as_json:
            tell_json({"batch_id": batch.id, "status": "failed", "faults": raw})
        for fault in faults:
            line = "" if fault.line is None else f":{fault.line}"
            say(f"{self._file}{line}: {printable(fault.message)} ({printable(fault.code)})")
        self._run.forget()
        fail(
            f"{self._file} was refused, and nothing has run. Correct it and run the same "
            "command again."
        )

    # -- where it goes wrong

    def give_up(self, error: SdkError) -> NoReturn:
        """End the command with what went wrong, and how to go on."""
        if isinstance(error, GatewayAway | BadAnswer):
            fail(f"{self._client.explain(error)}\n{self.how_to_go_on()}", code=NOT_REACHABLE)
        is_unknown = isinstance(error, GatewayError) and error.status == 404
        if is_unknown and self._run.state is not None:
            fail(
                f"the gateway at {self._client.url} does not know this file's batch (any more): "
                f"{printable(error)}. Is it the right one, with the right key? --restart "
                "starts again."
            )
        self._client.give_up(error)

    def how_to_go_on(self) -> str:
        """Return what the next call of the command would do."""
        state = self._run.state
        if state is None:
            return "Nothing was created. Run the same command again to start."
        if state.batch_id is None:
            return "The file is uploaded. Run the same command again to continue."
        return (
            f"Batch {state.batch_id} continues at {self._client.url}. Run the same command "
            "again to "
            "follow it and fetch its answers; add --cancel to end it."
        )


def _is_here(ended: EndedBatch, outputs: BatchOutputs) -> bool:
    """Say whether what a batch left is where it is wanted."""
    wanted = ((ended.output, outputs.output), (ended.errors, outputs.errors))
    return all(got is None or (got == str(path) and path.exists()) for got, path in wanted)


def _took_s(batch: Batch) -> float | None:
    began = batch.in_progress_at
    ended = batch.completed_at or batch.failed_at or batch.expired_at or batch.cancelled_at
    return None if began is None or ended is None else ended - began
