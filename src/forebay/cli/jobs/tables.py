"""Jobs on the terminal: one, many, and how many of each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.text import Text

from forebay.cli.invocation import at_gateway
from forebay.cli.output.tables import plain_table
from forebay.cli.output.text import harmless, printable, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from forebay.sdk import Job

STATUSES = ("queued", "running", "completed", "failed", "cancelled")
COLOURS = {
    "queued": "yellow",
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "cancelled": "dim",
}
ERROR_LENGTH_MAX = 60


def job_table(jobs: Sequence[Job], now: float) -> Table:
    """Return jobs as a table; `now` is in seconds since 1970."""
    table = plain_table("Job", "Type", "Status", "Stage", "Model", "Age", "Took", "Error")
    for job in jobs:
        table.add_row(
            str(job.id),
            printable(job.type),
            coloured(job.status),
            printable(job.stage or ""),
            printable(job.model or ""),
            _since(job.created_at, now),
            _took(job, now),
            _cut(printable(job.error or "")),
        )
    return table


def count_table(counts: Mapping[tuple[str, str], int]) -> Table:
    """Return how many jobs there are, by type and status."""
    table = plain_table("Type", *(status.capitalize() for status in STATUSES))
    for task_type in sorted({task_type for task_type, _ in counts}):
        numbers = [counts.get((task_type, status), 0) for status in STATUSES]
        shown = (
            Text(str(number), COLOURS[status] if number else "dim")
            for status, number in zip(STATUSES, numbers, strict=True)
        )
        table.add_row(printable(task_type), *shown)
    return table


def job_text(job: Job, now: float) -> Text:
    """Return all about one job, for people."""
    text = Text(f"Job {job.id} is ")
    text.append_text(coloured(job.status))
    for name, value in _facts(job, now):
        text.append(f"\n  {name:<10} {value}")
    if job.error:
        text.append(f"\n  {'Error':<10} {_error(job)}", "red")
    for name, value in (("Params", job.params), ("Result", job.result)):
        if value is not None:
            text.append(f"\n{name}:\n{pretty(value)}")
    if job.traceback:
        text.append(f"\nTraceback:\n{harmless(job.traceback).rstrip()}")
    if next_step := _next_step(job):
        text.append(f"\n{next_step}", "dim")
    return text


def pretty(value: object) -> str:
    """Return JSON for people, fit for a terminal."""
    try:
        return harmless(json.dumps(value, indent=2, ensure_ascii=False))
    except RecursionError:
        return "(nested too deeply to be printed)"


def answer_of(result: object) -> str:
    """Return what a model answered, as text where it is one.

    >>> answer_of({"choices": [{"message": {"content": "Hello"}}]})
    'Hello'
    >>> answer_of({"choices": [{"text": "Hello"}]})
    'Hello'
    >>> answer_of([1])
    '[\\n  1\\n]'
    """
    match result:
        case {"choices": [{"message": {"content": str(text)}}]} | {
            "choices": [{"text": str(text)}]
        }:
            return harmless(text)
        case _:
            return pretty(result)


def coloured(status: str) -> Text:
    """Return a status in its colour, which only a terminal shows."""
    return Text(printable(status), COLOURS.get(status, ""))


def _facts(job: Job, now: float) -> list[tuple[str, str]]:
    facts = [
        ("Type", printable(job.type)),
        ("Model", printable(job.model or "")),
        ("Stage", printable(job.stage or "")),
        ("Priority", printable(job.priority)),
        ("Job id", str(job.job_id or "")),
        ("Key", printable(job.idempotency_key or "")),
        ("Attempt", str(job.attempt) if job.attempt > 1 else ""),
        ("Submitted", f"{_since(job.created_at, now)} ago" if job.created_at else ""),
        ("Waited", _since(job.created_at, job.started_at) if job.started_at else ""),
        ("Took", _took(job, now)),
    ]
    return [(name, value) for name, value in facts if value]


def _error(job: Job) -> str:
    return f"{printable(job.error)} ({printable(job.error_code)})"


def _next_step(job: Job) -> str:
    if not job.ended:
        return f"Follow it with: {at_gateway(f'jobs watch {job.id}')}"
    if job.status != "completed":
        return f"Try it again with: {at_gateway(f'jobs retry {job.id}')}"
    return ""


def _took(job: Job, now: float) -> str:
    return _since(job.started_at, job.finished_at or now)


def _since(then: float | None, now: float) -> str:
    return "" if then is None else short(now - then)


def _cut(text: str) -> str:
    return text if len(text) <= ERROR_LENGTH_MAX else f"{text[: ERROR_LENGTH_MAX - 3]}..."
