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

from forebay.cli.exits import INTERRUPTED
from forebay.cli.gateway import say_outage, wait_s
from forebay.cli.invocation import at_gateway
from forebay.cli.jobs.tables import count_table, job_table
from forebay.cli.output.console import say, tell
from forebay.cli.output.tables import console_for_output
from forebay.clock import SystemClock
from forebay.sdk import BadAnswer, GatewayError, Job
from forebay.sdk.jobs import JobList, wait_for_job
from forebay.sdk.transport import PASSING, ApiCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console

    from forebay.cli.gateway import GatewayClient, GatewayReply

LOOK_EVERY_S = 1.0
JOBS_SHOWN = 15
ROWS_BESIDES = 12
"""What the counts and headings need of a terminal's height."""
CALM = Text("Ctrl-C stops watching; the jobs continue.", "dim")
JOBS_COUNTED = 1000
"""How many of the newest jobs are counted where a key may not see the metrics."""


# -- one job


def follow(
    client: GatewayClient, job_id: int, on_change: Callable[[Job], object]
) -> GatewayReply[Job]:
    """Follow a job until it has ended and return all about it; Ctrl-C leaves it alone.

    Ends the command where the gateway says no, or stays away.
    """
    try:
        with client.or_exit():
            client.run(lambda http: wait_for_job(http, job_id, None, on_change, say_outage))
            return client.ask("GET", f"/jobs/{job_id}", Job)
    except KeyboardInterrupt:
        say(
            f"\nJob {job_id} continues. Follow it with: {at_gateway(f'jobs watch {job_id}')}. "
            f"End it with: {at_gateway(f'jobs cancel {job_id}')}"
        )
        raise typer.Exit(INTERRUPTED) from None


# -- all of them


class JobOverview(NamedTuple):
    """What there is at one moment."""

    counts: Mapping[tuple[str, str], int]
    counted: str
    """Which jobs the counts are of."""
    jobs: Sequence[Job]
    raw_jobs: list[Any]
    """The same as they came."""


def look(client: GatewayClient) -> JobOverview:
    """Return what there is; raises SdkError."""
    try:
        _, _, metrics = client.run(lambda http: http.fetch(ApiCall("GET", "/metrics")))
        counts = _counts_in(metrics)
        counted = "All jobs, lines of batches included"
        reply = client.ask("GET", f"/jobs?limit={JOBS_SHOWN}", JobList)
    except GatewayError:  # not everyone may see the metrics
        counted = f"Of the newest {JOBS_COUNTED}"
        reply = client.ask("GET", f"/jobs?limit={JOBS_COUNTED}", JobList)
        counts = Counter((job.type, job.status) for job in reply.value.data)
    shown = slice(0, JOBS_SHOWN)
    return JobOverview(counts, counted, reply.value.data[shown], reply.raw["data"][shown])


def watch_all(client: GatewayClient, as_json: bool) -> None:
    """Show all jobs every second, until Ctrl-C; where nobody looks, once."""
    console = console_for_output()
    try:
        with client.or_exit():
            if as_json:
                _print_looks(client)
            elif console.is_terminal:
                _draw_looks(client, console)
            else:
                console.print(_drawn(look(client), JOBS_SHOWN, Text()))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _looks(client: GatewayClient) -> Iterator[tuple[JobOverview, str]]:
    """Yield what there is, every second; while the gateway is away, what there was, and why."""
    seen, trouble = look(client), ""
    while True:
        yield seen, trouble
        wait_s(LOOK_EVERY_S)
        try:
            seen, trouble = look(client), ""
        except PASSING as problem:
            trouble = client.explain(problem)


def _print_looks(client: GatewayClient) -> None:
    last_trouble = ""
    for seen, trouble in _looks(client):
        if trouble and trouble != last_trouble:
            say(trouble)
        last_trouble = trouble
        counts: dict[str, dict[str, int]] = {}
        for (task_type, status), number in seen.counts.items():
            counts.setdefault(task_type, {})[status] = number
        if not trouble:
            tell(json.dumps({"counts": counts, "jobs": seen.raw_jobs}))


def _draw_looks(client: GatewayClient, console: Console) -> None:
    with Live(console=console, auto_refresh=False) as live:
        for seen, trouble in _looks(client):
            shown = max(1, min(JOBS_SHOWN, console.height - ROWS_BESIDES))
            foot = Text(trouble, "red") if trouble else CALM
            live.update(_drawn(seen, shown, foot), refresh=True)


def _drawn(seen: JobOverview, jobs_max: int, foot: Text) -> Group:
    if not seen.counts and not seen.jobs:
        return Group(Text("There are no jobs yet."), foot)
    return Group(
        Text(f"{seen.counted}:"),
        count_table(seen.counts),
        Text("The newest:"),
        job_table(seen.jobs[:jobs_max], SystemClock().utc().timestamp()),
        foot,
    )


def _counts_in(metrics: bytes) -> dict[tuple[str, str], int]:
    """Return how many jobs there are of each type and status; raises BadAnswer."""
    try:
        return {
            (sample.labels["type"], sample.labels["status"]): int(sample.value)
            for family in text_string_to_metric_families(metrics.decode())
            if family.name == "forebay_jobs"
            for sample in family.samples
            if sample.value
        }
    except (ValueError, LookupError, OverflowError) as error:
        raise BadAnswer(
            f"the metrics cannot be parsed: {error}; is this a Forebay gateway?"
        ) from None
