"""Jobs on the terminal: one, many, and how many of each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.text import Text

from forebay.cli.gateway_client import harmless, printable
from forebay.cli.invocation import as_called
from forebay.cli.output.tables import plain_table
from forebay.cli.output.text import short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

STATUSES = ("queued", "running", "completed", "failed", "cancelled")
FINAL = ("completed", "failed", "cancelled")
COLOURS = {
    "queued": "yellow",
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "cancelled": "dim",
}
ERROR_LENGTH_MAX = 60


def job_table(jobs: list[dict[str, Any]], now: float) -> Table:
    """Return jobs as a table; `now` is in seconds since 1970."""
    table = plain_table("Job", "Type", "Status", "Stage", "Model", "Age", "Took", "Error")
    for job in jobs:
        table.add_row(
            str(job["id"]),
            printable(job["type"]),
            coloured(job["status"]),
            printable(job["stage"] or ""),
            printable(job["model"] or ""),
            short(now - job["created_at"]),
            _took(job, now),
            _cut(printable(job["error"] or "")),
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


def job_text(job: Mapping[str, Any], now: float) -> Text:
    """Return all about one job, for people."""
    text = Text(f"Job {job['id']} is ")
    text.append_text(coloured(job["status"]))
    for name, value in _facts(job, now):
        text.append(f"\n  {name:<10} {value}")
    if job["error"]:
        text.append(f"\n  {'Error':<10} {_error(job)}", "red")
    for name, value in (("Params", job["params"]), ("Result", job["result"])):
        if value is not None:
            text.append(f"\n{name}:\n{pretty(value)}")
    if job["traceback"]:
        text.append(f"\nTraceback:\n{harmless(job['traceback']).rstrip()}")
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


def _facts(job: Mapping[str, Any], now: float) -> list[tuple[str, str]]:
    facts = [
        ("Type", printable(job["type"])),
        ("Model", printable(job["model"] or "")),
        ("Stage", printable(job["stage"] or "")),
        ("Priority", printable(job["priority"])),
        ("Job id", str(job["job_id"] or "")),
        ("Key", printable(job["idempotency_key"] or "")),
        ("Attempt", str(job["attempt"]) if job["attempt"] > 1 else ""),
        ("Submitted", f"{short(now - job['created_at'])} ago"),
        ("Waited", short(job["started_at"] - job["created_at"]) if job["started_at"] else ""),
        ("Took", _took(job, now)),
    ]
    return [(name, value) for name, value in facts if value]


def _error(job: Mapping[str, Any]) -> str:
    return f"{printable(job['error'])} ({printable(job['error_code'])})"


def _next_step(job: Mapping[str, Any]) -> str:
    if job["status"] not in FINAL:
        return f"Follow it with: {as_called('jobs watch')} {job['id']}"
    if job["status"] != "completed":
        return f"Try it again with: {as_called('jobs retry')} {job['id']}"
    return ""


def _took(job: Mapping[str, Any], now: float) -> str:
    if job["started_at"] is None:
        return ""
    return short((job["finished_at"] or now) - job["started_at"])


def _cut(text: str) -> str:
    return text if len(text) <= ERROR_LENGTH_MAX else f"{text[: ERROR_LENGTH_MAX - 3]}..."
