"""Following jobs: one by its events, or all of them in a table that is drawn again and again."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Group
from rich.live import Live
from rich.text import Text

from forebay.cli.exits import INTERRUPTED, NOT_REACHABLE
from forebay.cli.gateway_client import (
    BYTES_MAX,
    GatewayAway,
    GatewayRefused,
    Senseless,
    checked,
    senseless,
)
from forebay.cli.invocation import as_called
from forebay.cli.jobs.tables import FINAL, count_table, job_table
from forebay.cli.output.console import fail, say, tell
from forebay.cli.output.tables import console_for_output
from forebay.cli.patience import PAUSE_S, Patience, is_passing, wait_s
from forebay.cli.shapes import Job, Jobs, JobStep
from forebay.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import Console

    from forebay.cli.gateway_client import GatewayClient

EVENTS_LIMIT_S = 60.0
"""The gateway sends a comment every 15 s; four times that is silence."""
LOOK_EVERY_S = 1.0
JOBS_SHOWN = 15
ROWS_BESIDES = 12
"""What the counts and headings need of a terminal's height."""
CALM = Text("Ctrl-C ends this; the jobs go on.", "dim")
JOBS_COUNTED = 1000
"""How many of the newest jobs are counted where a key may not see the metrics."""


# -- one job


def followed(
    client: GatewayClient, job_id: int, note: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Follow a job until it has ended and return all about it; Ctrl-C leaves it alone.

    Ends the command where the gateway says no, or stays away.
    """
    patience = Patience(SystemClock(), say)
    following = _Following(client, job_id, note)
    try:
        while patience.until_answered(following.listen) not in FINAL:
            patience.wait(PAUSE_S)  # the gateway stops, or something between us cut the line
        found = patience.until_answered(lambda: client.attempt("GET", f"/jobs/{job_id}", shape=Job))
    except GatewayRefused as refused:
        client.give_up(refused)
    except GatewayAway as away:
        fail(str(away), code=NOT_REACHABLE)
    except KeyboardInterrupt:
        say(
            f"\nJob {job_id} goes on. Follow it with: {as_called('jobs watch')} {job_id}. "
            f"End it with: {as_called('jobs cancel')} {job_id}"
        )
        raise typer.Exit(INTERRUPTED) from None
    job: dict[str, Any] = found.value
    return job


class _Following:
    def __init__(
        self, client: GatewayClient, job_id: int, note: Callable[[dict[str, Any]], None]
    ) -> None:
        self._client = client
        self._path = f"/jobs/{job_id}/events"
        self._note = note
        self._seen: tuple[object, ...] = ()

    def listen(self) -> str:
        """Return the last status heard; raises GatewayAway where nothing was."""
        status = ""
        try:
            with self._client.opened("GET", self._path, limit_s=EVENTS_LIMIT_S) as reply:
                for line in reply.lines():
                    if line.startswith(b"data:"):
                        status = self._hear(_step_in(line[5:]))
        except Senseless:
            raise
        except GatewayAway:
            if not status:
                raise
        if not status:
            raise GatewayAway(f"the gateway at {self._client.url} ended the events early.")
        return status

    def _hear(self, job: dict[str, Any]) -> str:
        now = (job["status"], job["stage"], job["attempt"])
        if now != self._seen:  # it is told again after a line that was cut
            self._seen = now
            self._note(job)
        return str(job["status"])


# -- all of them


class Look(NamedTuple):
    """What there is at one moment."""

    counts: Mapping[tuple[str, str], int]
    counted: str
    """Which jobs the counts are of."""
    jobs: list[dict[str, Any]]


def look(client: GatewayClient) -> Look:
    """Return what there is; raises GatewayRefused and GatewayAway."""
    try:
        with client.opened("GET", "/metrics") as reply:
            counts = _counts_in(reply.read(BYTES_MAX))
    except GatewayRefused:  # not everyone may see them
        jobs = client.attempt("GET", f"/jobs?limit={JOBS_COUNTED}", shape=Jobs).value["data"]
        counts = Counter((job["type"], job["status"]) for job in jobs)
        return Look(counts, f"Of the newest {JOBS_COUNTED}", jobs[:JOBS_SHOWN])
    jobs = client.attempt("GET", f"/jobs?limit={JOBS_SHOWN}", shape=Jobs).value["data"]
    return Look(counts, "All jobs, lines of batches included", jobs)


def watch_all(client: GatewayClient, as_json: bool) -> None:
    """Show all jobs every second, until Ctrl-C; where nobody looks, once."""
    console = console_for_output()
    try:
        if as_json:
            _print_looks(client)
        elif console.is_terminal:
            _draw_looks(client, console)
        else:
            console.print(_drawn(look(client), JOBS_SHOWN, Text()))
    except GatewayRefused as refused:
        client.give_up(refused)
    except GatewayAway as away:
        fail(str(away), code=NOT_REACHABLE)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _print_looks(client: GatewayClient) -> None:
    patience = Patience(SystemClock(), say)
    while True:
        seen = patience.until_answered(lambda: look(client))
        counts: dict[str, dict[str, int]] = {}
        for (task_type, status), number in seen.counts.items():
            counts.setdefault(task_type, {})[status] = number
        tell(json.dumps({"counts": counts, "jobs": seen.jobs}))
        wait_s(LOOK_EVERY_S)


def _draw_looks(client: GatewayClient, console: Console) -> None:
    seen, trouble = look(client), ""
    with Live(console=console, auto_refresh=False) as live:
        while True:
            shown = max(1, min(JOBS_SHOWN, console.height - ROWS_BESIDES))
            foot = Text(trouble, "red") if trouble else CALM
            live.update(_drawn(seen, shown, foot), refresh=True)
            wait_s(LOOK_EVERY_S)
            try:
                seen, trouble = look(client), ""
            except (GatewayAway, GatewayRefused) as problem:
                if not is_passing(problem):
                    raise
                trouble = str(problem)


def _drawn(seen: Look, jobs_max: int, foot: Text) -> Group:
    if not seen.counts and not seen.jobs:
        return Group(Text("There are no jobs yet."), foot)
    return Group(
        Text(f"{seen.counted}:"),
        count_table(seen.counts),
        Text("The newest:"),
        job_table(seen.jobs[:jobs_max], SystemClock().utc().timestamp()),
        foot,
    )


def _step_in(data: bytes) -> dict[str, Any]:
    """Return what an event tells; raises Senseless."""
    try:
        step = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise senseless(str(error)) from None
    found: dict[str, Any] = checked(step, JobStep)
    return found


def _counts_in(metrics: bytes) -> dict[tuple[str, str], int]:
    """Return how many jobs there are of each type and status; raises Senseless."""
    try:
        return {
            (sample.labels["type"], sample.labels["status"]): int(sample.value)
            for family in text_string_to_metric_families(metrics.decode())
            if family.name == "forebay_jobs"
            for sample in family.samples
            if sample.value
        }
    except (ValueError, LookupError, OverflowError) as error:
        raise senseless(f"metrics: {error}") from None
