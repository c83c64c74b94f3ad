"""`forebay jobs`: durable work for a running gateway."""

from __future__ import annotations

import json
import sys
from pathlib import Path  # noqa: TC003 - Typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer

from forebay.cli.each import for_each
from forebay.cli.exits import USAGE
from forebay.cli.gateway import AsJson, GatewayClient, GatewayUrl, KeyEnv
from forebay.cli.invocation import at_gateway
from forebay.cli.jobs.tables import STATUSES, answer_of, job_table, job_text
from forebay.cli.offers import jobs_that_are, model_names, one_of
from forebay.cli.output.console import fail, say, tell, tell_json
from forebay.cli.output.tables import show
from forebay.cli.output.text import printable
from forebay.cli.verbs import SynonymGroup
from forebay.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.sdk import Job

jobs_app = typer.Typer(
    name="jobs",
    cls=SynonymGroup,
    help="Submit durable jobs to a running gateway, and follow them.",
    epilog="Jobs survive a restart and run in idle slots. Try: "
    'forebay jobs submit chat --model MODEL --prompt "Why is the sky blue?" --wait',
    no_args_is_help=True,
)

BUILT_IN_TYPES = ("chat", "completion", "embedding", "response")
JobNumber = Annotated[
    int,
    typer.Argument(
        metavar="ID",
        min=1,
        help="Number of the job, from `forebay jobs list`.",
        autocompletion=jobs_that_are(),
    ),
]
ACTIVE, ENDED_BADLY = ("queued", "running"), ("failed", "cancelled")
PRIORITIES = ("high", "normal", "low")
TaskType = Annotated[
    str,
    typer.Argument(
        metavar="TYPE",
        help="chat, completion, embedding, response, or a custom type.",
        autocompletion=one_of(*BUILT_IN_TYPES),
    ),
]
Model = Annotated[
    str | None,
    typer.Option(help="The model, if it is not in the params.", autocompletion=model_names),
]
JobPriority = Annotated[
    str | None,
    typer.Option(
        metavar="P",
        help="Priority among jobs: high, normal or low.",
        autocompletion=one_of(*PRIORITIES),
    ),
]


def _numbers(*statuses: str) -> object:
    return typer.Argument(
        metavar="ID...",
        min=1,
        help="Numbers of jobs, from `forebay jobs list`.",
        autocompletion=jobs_that_are(*statuses),
    )


@jobs_app.command()
def submit(  # noqa: PLR0913 - Typer reads the options from the signature
    task_type: TaskType,
    source: Annotated[
        str | None,
        typer.Argument(metavar="-", help="- reads the params from standard input."),
    ] = None,
    *,
    params: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Params as JSON; for chat, the body of the request."),
    ] = None,
    params_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read the params from this file.")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Build the params from this prompt.")
    ] = None,
    model: Model = None,
    job_id: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Your own number; submitting the same job twice creates one."
        ),
    ] = None,
    priority: JobPriority = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="K", help="Idempotency key: unfinished jobs with the same key are one job."
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow the job and print its result.")
    ] = False,
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Submit a job. With --wait, exits with 1 if it fails."""
    _check_word("--priority", priority, PRIORITIES)
    given = {
        "params": _params(task_type, source, params, params_file, prompt),
        "model": model,
        "job_id": job_id,
        "priority": priority,
        "idempotency_key": key,
    }
    body = {"type": task_type} | {name: value for name, value in given.items() if value is not None}
    client = GatewayClient(url, key_env)
    from forebay.sdk import Job

    reply = client.insist("POST", "/jobs", Job, body)
    added = reply.value
    if wait:
        say(_added(added))
        _follow(client, added.id, as_json)
    elif as_json:
        tell_json(reply.raw)
    else:
        tell(f"{_added(added)} Follow it with: {at_gateway(f'jobs watch {added.id}')}")


@jobs_app.command("list")
def list_jobs(  # noqa: PLR0913 - Typer reads the options from the signature
    *,
    status: Annotated[
        str | None,
        typer.Option(
            help="Only queued, running, completed, failed or cancelled ones.",
            autocompletion=one_of(*STATUSES),
        ),
    ] = None,
    task_type: Annotated[
        str | None,
        typer.Option(
            "--type", help="Only jobs of this type.", autocompletion=one_of(*BUILT_IN_TYPES)
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Only jobs of this model.", autocompletion=model_names)
    ] = None,
    before: Annotated[
        int | None, typer.Option(metavar="ID", min=1, help="Only jobs older than this one.")
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=1000, help="Maximum number to list, newest first.")
    ] = 20,
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    _check_word("--status", status, STATUSES)
    asked = {
        "status": status, "type": task_type, "model": model, "before": before, "limit": limit,
    }  # fmt: skip
    query = urlencode({name: value for name, value in asked.items() if value is not None})
    from forebay.sdk.jobs import JobList

    reply = GatewayClient(url, key_env).insist("GET", f"/jobs?{query}", JobList)
    if as_json:
        tell_json(reply.raw["data"])
    elif reply.value.data:
        show(job_table(reply.value.data, _now()))
    elif status or task_type or model or before:
        tell(f"There are no such jobs. All of them: {at_gateway('jobs list')}")
    else:
        submit = 'jobs submit chat --model MODEL --prompt "Why is the sky blue?"'
        tell(f"There are no jobs. Submit one with: {at_gateway(submit)}")


@jobs_app.command("show")
def show_job(
    number: JobNumber, url: GatewayUrl = None, key_env: KeyEnv = "", as_json: AsJson = False
) -> None:
    """Show one job and its result."""
    from forebay.sdk import Job

    reply = GatewayClient(url, key_env).insist("GET", f"/jobs/{number}", Job)
    if as_json:
        tell_json(reply.raw)
    else:
        show(job_text(reply.value, _now()))


@jobs_app.command()
def cancel(
    numbers: Annotated[list[int], _numbers(*ACTIVE)],
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Cancel queued or running jobs. Exits with 1 if one could not be."""
    client = GatewayClient(url, key_env)
    for_each(client, "job", numbers, lambda n: ("DELETE", f"/jobs/{n}"), "is cancelled.", as_json)


@jobs_app.command()
def retry(
    numbers: Annotated[list[int], _numbers(*ENDED_BADLY)],
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Queue failed or cancelled jobs again. Exits with 1 if one could not be."""
    said = "is queued again; `forebay jobs watch` follows it."
    client = GatewayClient(url, key_env)
    for_each(client, "job", numbers, lambda n: ("POST", f"/jobs/{n}/retry"), said, as_json)


@jobs_app.command()
def watch(
    number: Annotated[
        int | None,
        typer.Argument(
            metavar="ID",
            min=1,
            help="Number of a job; without it, all jobs, every second.",
            show_default=False,
            autocompletion=jobs_that_are(),
        ),
    ] = None,
    url: GatewayUrl = None,
    key_env: KeyEnv = "",
    as_json: AsJson = False,
) -> None:
    """Follow one job to its end, or watch all of them until Ctrl-C.

    Of one job the result is printed; exits with 1 if it failed.
    """
    from forebay.cli.jobs.watch import watch_all

    client = GatewayClient(url, key_env)
    if number is None:
        watch_all(client, as_json)
    else:
        _follow(client, number, as_json)


def _follow(client: GatewayClient, number: int, as_json: bool) -> None:
    """Follow a job; its steps go to standard error, its result to standard output."""
    from forebay.cli.jobs.watch import follow

    reply = follow(client, number, _say_step)
    job = reply.value
    if as_json:
        tell_json(reply.raw)
    elif job.status == "completed":
        tell(answer_of(job.result))
    if job.status == "completed":
        return
    why = f": {printable(job.error)} ({printable(job.error_code)})" if job.error else ""
    ended = "was cancelled" if job.status == "cancelled" else "failed"
    fail(f"job {number} {ended}{why}. Try again: {at_gateway(f'jobs retry {number}')}")


def _say_step(job: Job) -> None:
    stage = f", {printable(job.stage)}" if job.stage else ""
    attempt = f", attempt {job.attempt}" if job.attempt > 1 else ""
    say(f"Job {job.id}: {printable(job.status)}{stage}{attempt}")


def _added(added: Job) -> str:
    if added.is_new:
        return f"Job {added.id} is {printable(added.status)}."
    return f"This work is already job {added.id}, which is {printable(added.status)}."


def _check_word(option: str, given: str | None, words: Sequence[str]) -> None:
    """End the command where an option is none of the words that it may be."""
    if given is not None and given.strip().lower() not in words:
        fail(f"{option} {given!r}: write one of {', '.join(words)}.", code=USAGE)


def _params(
    task_type: str,
    source: str | None,
    params: str | None,
    params_file: Path | None,
    prompt: str | None,
) -> object:
    """Return what a job is to do, from wherever it was given; None where it was not."""
    if source not in (None, "-"):
        fail(f"{source!r} is unexpected here. Params are given with --params JSON.", code=USAGE)
    if [source, params, params_file, prompt].count(None) < 3:
        fail("give one of --params, --params-file, --prompt and -, not several.", code=USAGE)
    if prompt is not None:
        return _prompted(task_type, prompt)
    if params is not None:
        return _parsed(params, "--params")
    if params_file is not None and str(params_file) != "-":
        try:
            return _parsed(params_file.read_text(), f"--params-file {params_file}")
        except (OSError, UnicodeDecodeError) as error:
            fail(f"--params-file {params_file} cannot be read: {error}.", code=USAGE)
    if source is not None or params_file is not None:
        return _parsed(sys.stdin.read(), "standard input")
    return None


def _prompted(task_type: str, prompt: str) -> dict[str, Any]:
    match task_type:
        case "chat":
            return {"messages": [{"role": "user", "content": prompt}]}
        case "embedding":
            return {"input": prompt}
        case _:
            return {"prompt": prompt}


def _parsed(text: str, where: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        fail(f"{where} is not JSON: {error}.", code=USAGE)


def _now() -> float:
    return SystemClock().utc().timestamp()
