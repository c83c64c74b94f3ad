"""`forebay batch`: run a file of requests on your own machines, as OpenAI's batch API does."""

from __future__ import annotations

import re
from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer

from forebay.cli.batch.progress import View
from forebay.cli.batch.run import BadFile, BatchRun, StateBroken, Targets, endpoint_of
from forebay.cli.exits import FAILED, INTERRUPTED, NOT_REACHABLE, USAGE
from forebay.cli.gateway_client import (
    AsJson,
    GatewayAway,
    GatewayClient,
    GatewayRefused,
    GatewayUrl,
    KeyEnv,
    printable,
)
from forebay.cli.output.console import fail, say, tell, tell_json
from forebay.cli.output.text import short
from forebay.cli.patience import Patience
from forebay.clock import SystemClock

if TYPE_CHECKING:
    from forebay.cli.batch.run import BatchState, Ended

EPILOG = (
    "Exits with 0 when every line was answered, 1 when some failed, 2 when asked wrongly, 3 when "
    "no gateway can be reached, 4 when it wants another key, 130 after Ctrl-C. "
    "What is needed to go on is kept beside the file, in FILE.jsonl.forebay."
)
WINDOW = re.compile(r"[1-9][0-9]{0,3}[hd]")


class Asked(NamedTuple):
    """What was typed."""

    file: Path
    targets: Targets
    endpoint: str | None
    window: str
    cancel: bool
    restart: bool
    as_json: bool


def batch(  # noqa: PLR0913 - Typer reads the options from the signature
    file: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="One request for each line, as OpenAI's.")
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(metavar="F", help="Where the answers go; else FILE.out.jsonl."),
    ] = None,
    errors: Annotated[
        Path | None,
        typer.Option(metavar="F", help="Where failed lines go, if any; else FILE.errors.jsonl."),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(metavar="E", help="What the lines ask for; else the first line's url."),
    ] = None,
    window: Annotated[
        str, typer.Option(metavar="W", help="What is not done by then expires: 24h, 7d.")
    ] = "24h",
    cancel: Annotated[
        bool, typer.Option("--cancel", help="End this file's batch, and fetch what is done.")
    ] = False,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Begin anew; a batch of before that still runs is ended."),
    ] = False,
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Run a file of requests as a batch, and fetch the answers.

    Ctrl-C leaves the batch running; the same command again goes on with it.
    """
    if cancel and restart:
        fail("--cancel ends a batch and --restart begins one: give one of them.", code=USAGE)
    if not WINDOW.fullmatch(window):
        fail(f"--window {window!r}: write hours or days, such as 24h or 7d.", code=USAGE)
    stem = file.with_suffix("") if file.suffix == ".jsonl" else file
    targets = Targets(
        out or stem.with_name(stem.name + ".out.jsonl"),
        errors or stem.with_name(stem.name + ".errors.jsonl"),
        errors_are_ours=errors is None,
    )
    asked = Asked(file, targets, endpoint, window, cancel, restart, as_json)
    client = GatewayClient(url, key_env)
    view = View(SystemClock())
    try:
        run = BatchRun(file, client, Patience(SystemClock(), view.say), view)
    except StateBroken as broken:
        fail(str(broken), code=USAGE)
    _guarded(run, asked, client)


def _guarded(run: BatchRun, asked: Asked, client: GatewayClient) -> None:
    """Do what was asked; every way it may go wrong says how to go on."""
    try:
        if asked.cancel:
            _cancel(run, asked, client)
        else:
            _begin(run, asked, client)
        _finish(run, asked, client)
    except KeyboardInterrupt:
        say(f"\n{_how_to_go_on(run, client)}")
        raise typer.Exit(INTERRUPTED) from None
    except BadFile as bad:
        fail(str(bad), code=USAGE)
    except GatewayAway as away:
        fail(f"{away}\n{_how_to_go_on(run, client)}", code=NOT_REACHABLE)
    except GatewayRefused as refused:
        _refused(refused, run, client)


def _begin(run: BatchRun, asked: Asked, client: GatewayClient) -> None:
    """Bring the batch to where it runs, by as few steps as are left."""
    endpoint = endpoint_of(asked.file, asked.endpoint)
    if asked.restart:
        _drop(run, client)
    elif run.state is not None:
        _check_resumable(run, asked, client)
    else:
        _check_targets(asked.targets)
    if run.state is None:
        run.upload(endpoint)
        say(f"Uploaded {asked.file} ({_state(run).size:,} bytes) to {client.url}.")
    elif run.state.batch_id is None and run.find():
        say("The batch was created before; going on with it.")
    if _state(run).batch_id is None:
        run.create(asked.window)
        say(f"Batch {_state(run).batch_id} is created. Ctrl-C leaves it running.")
    elif _state(run).ended is None:
        say(f"Going on with batch {_state(run).batch_id}.")


def _cancel(run: BatchRun, asked: Asked, client: GatewayClient) -> None:
    if run.state is None:
        fail(f"no batch of {asked.file} is known here: there is nothing to cancel.", code=USAGE)
    _check_place(run, asked, client)
    if run.state.batch_id is None and not run.find():
        run.forget()
        fail(f"no batch of {asked.file} was created: there is nothing to cancel.", code=USAGE)
    if _state(run).ended is None and not run.cancel():
        say(f"Batch {_state(run).batch_id} cannot be cancelled any more; fetching what it left.")


def _drop(run: BatchRun, client: GatewayClient) -> None:
    """Forget a batch of before; one that still runs is ended, as nobody would fetch its output."""
    state = run.state
    if state is None:
        return
    if state.batch_id is not None and state.ended is None:
        if state.url != client.url:
            say(f"Batch {state.batch_id} at {state.url} is left as it is.")
        else:
            try:
                if run.cancel():
                    say(f"Batch {state.batch_id} of before is cancelled.")
            except GatewayRefused as refused:
                if refused.status != 404:
                    raise
    run.forget()


def _check_resumable(run: BatchRun, asked: Asked, client: GatewayClient) -> None:
    _check_place(run, asked, client)
    if not run.is_unchanged():
        fail(
            f"{asked.file} has changed since its batch was created. --restart begins anew with "
            "the file as it is; --cancel ends the batch and fetches what is done.",
            code=USAGE,
        )


def _check_place(run: BatchRun, asked: Asked, client: GatewayClient) -> None:
    state = _state(run)
    if state.url != client.url and state.ended is None:
        fail(
            f"the batch of {asked.file} is at {state.url}, not at {client.url}. "
            f"Add --url {state.url}. Or --restart begins anew at {client.url}.",
            code=USAGE,
        )


def _check_targets(targets: Targets) -> None:
    """See that nothing is overwritten that another run, or another program, has left."""
    for path, option in ((targets.output, "--out"), (targets.errors, "--errors")):
        if path.exists():
            fail(
                f"{path} is there already, and not by a batch that is known here. Name another "
                f"file with {option}, or move it away; --restart overwrites it.",
                code=USAGE,
            )
        if not path.parent.is_dir():
            fail(f"{option} {path}: its folder does not exist. Make it first.", code=USAGE)


def _finish(run: BatchRun, asked: Asked, client: GatewayClient) -> None:
    state = _state(run)
    if state.ended is not None and _is_here(state.ended, asked.targets):
        if not asked.as_json:
            say(f"Batch {state.batch_id} has ended before; --restart runs {asked.file} again.")
        _sum_up(run, asked, state.ended, None)
    found = run.follow()
    if found["status"] == "failed":
        _tell_faults(run, asked, found)
    ended = run.fetch(found, asked.targets)
    took_s = None if found["in_progress_at"] is None else _ended_at(found) - found["in_progress_at"]
    _sum_up(run, asked, ended, took_s)


def _is_here(ended: Ended, targets: Targets) -> bool:
    """Say whether what a batch left is where it is wanted."""
    wanted = ((ended.output, targets.output), (ended.errors, targets.errors))
    return all(got is None or (got == str(path) and path.exists()) for got, path in wanted)


def _ended_at(found: dict[str, Any]) -> float:
    return float(found.get(f"{found['status']}_at") or found["in_progress_at"])


def _sum_up(run: BatchRun, asked: Asked, ended: Ended, took_s: float | None) -> NoReturn:
    """Say how it went, and exit accordingly."""
    state = _state(run)
    if asked.as_json:
        counts = {"total": ended.total, "completed": ended.completed, "failed": ended.failed}
        shown = {
            "batch_id": state.batch_id,
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
        tell(
            f"Batch {state.batch_id} {_outcome(ended.status)}{took}: "
            f"{ended.completed:,} of {ended.total:,} lines answered{failed}."
        )
        for words, path in (("Answers", ended.output), ("Failed lines", ended.errors)):
            if path is not None:
                tell(f"{words}: {path}")
    all_good = ended.status == "completed" and not ended.failed
    as_asked = asked.cancel and ended.status == "cancelled"
    raise typer.Exit(0 if all_good or as_asked else FAILED)


def _outcome(status: str) -> str:
    return {
        "completed": "is completed",
        "expired": "has expired",
        "cancelled": "was cancelled",
    }.get(status, printable(status))


def _tell_faults(run: BatchRun, asked: Asked, found: dict[str, Any]) -> NoReturn:
    """Say what is wrong with the file, line by line; nothing has run, so nothing is kept."""
    faults = (found["errors"] or {}).get("data") or []
    if asked.as_json:
        shown = {"batch_id": found["id"], "status": "failed", "faults": faults}
        tell_json(shown)
    for fault in faults:
        line = "" if fault.get("line") is None else f":{fault['line']}"
        say(f"{asked.file}{line}: {printable(fault['message'])} ({printable(fault['code'])})")
    run.forget()
    fail(f"{asked.file} was refused, and nothing has run. Mend it and run the same command again.")


def _refused(refused: GatewayRefused, run: BatchRun, client: GatewayClient) -> NoReturn:
    if refused.status == 404 and run.state is not None:
        fail(
            f"the gateway at {client.url} does not know this file's batch (any more): {refused} "
            f"({refused.code}). Is it the right one, with the right key? --restart begins anew."
        )
    client.give_up(refused)


def _how_to_go_on(run: BatchRun, client: GatewayClient) -> str:
    state = run.state
    if state is None:
        return "Nothing was created. Run the same command again to begin."
    if state.batch_id is None:
        return "The file is uploaded. Run the same command again to go on."
    return (
        f"Batch {state.batch_id} goes on at {client.url}. Run the same command again to follow it "
        "and fetch its answers; add --cancel to end it."
    )


def _state(run: BatchRun) -> BatchState:
    assert run.state is not None
    return run.state
