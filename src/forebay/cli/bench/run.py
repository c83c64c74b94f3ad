"""`forebay bench`, from what was typed to what is reported."""

from __future__ import annotations

import asyncio
import gc
import secrets
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self, TypeVar, get_args

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from forebay import __version__
from forebay.cli.bench.report import check_outputs, report, write
from forebay.cli.exits import BROKEN_LIMIT, FAILED, INTERRUPTED, NOT_ALLOWED, NOT_REACHABLE, USAGE
from forebay.cli.gateway import where_and_key
from forebay.cli.invocation import as_called
from forebay.cli.output.console import complain, fail, say, tell
from forebay.cli.output.tables import SafeConsole
from forebay.cli.output.text import printable, short
from forebay.clock import SystemClock
from forebay.load.document import Document, document, encode
from forebay.load.limits import Broken, Limit, broken_limits, parse_limit
from forebay.load.page import page
from forebay.load.plan import ONE_PRIORITY, REQUESTS_MAX, Kind, LoadPlan, parse_mix
from forebay.load.quantities import BadPlan, duration_s
from forebay.load.report import run_report
from forebay.load.run import AccessDenied, Unreachable, load, models_of
from forebay.load.trace import TOKENS_MAX

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from forebay.clock import Clock
    from forebay.load.run import RunProgress

T = TypeVar("T")

LINE_EVERY_S = 5.0
LATE_S = 0.05
"""Later than this is said while it runs, too."""
SALT_LENGTH_MAX = 64
SPARE_FILES = 64
"""Open files beside the connections."""


class BenchProgressBar:
    """How far a run is: a bar on a terminal, a line every few seconds elsewhere; on stderr."""

    def __init__(
        self, clock: Clock, plan: LoadPlan, planned: int, console: SafeConsole | None = None
    ) -> None:
        self._clock = clock
        self._plan = plan
        self._planned = planned
        self._console = console or SafeConsole(stderr=True, markup=False, highlight=False)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._said_s = clock.monotonic_s()

    def __enter__(self) -> Self:
        plan = self._plan
        how = {"poisson": "Poisson arrivals", "constant": "even arrivals", "trace": "a trace"}
        self._console.print(
            f"Loading {plan.url} with {printable(plan.model)}: {self._planned:,} requests, "
            f"{how[plan.arrivals]}. Ctrl-C ends early and still reports.",
            soft_wrap=True,
        )
        if self._console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[figures]}"),
            )
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._bar.start()
            self._task = self._bar.add_task("Sending", total=self._planned, figures="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, live: RunProgress) -> None:
        if self._bar is not None and self._task is not None:
            over = live.ok + live.failed + live.not_sent
            self._bar.update(
                self._task,
                description=_stage(live, self._plan),
                completed=over,
                figures=figures(live),
            )
            return
        now_s = self._clock.monotonic_s()
        if now_s - self._said_s >= LINE_EVERY_S:
            self._said_s = now_s
            self._console.print(f"{_stage(live, self._plan)}: {figures(live)}", soft_wrap=True)


def _stage(live: RunProgress, plan: LoadPlan) -> str:
    if live.now_s < plan.warmup_s:
        return "Warming up"
    return "Sending" if live.now_s < live.span_s else "Waiting for the last answers"


def figures(live: RunProgress) -> str:
    """Return the figures of the moment.

    >>> from forebay.load.run import RunProgress
    >>> figures(RunProgress(10, span_s=30.0, now_s=12.0, sent=4, ok=2, failed=1, in_flight=1))
    '12 s of 30 s, 2 answered, 1 failed, 1 under way'
    """
    parts = [f"{short(live.now_s)} of {short(live.span_s)}", f"{live.ok:,} answered"]
    if live.failed:
        parts.append(f"{live.failed:,} failed")
    parts.append(f"{live.in_flight:,} under way")
    if live.not_sent:
        parts.append(f"{live.not_sent:,} NOT SENT")
    if live.late_s > LATE_S:
        parts.append(f"{live.late_s:.1f} s BEHIND")
    return ", ".join(parts)


class BenchOutputs(NamedTuple):
    """Where the results go."""

    html: Path | None
    save: Path | None
    as_json: bool


def start(given: dict[str, Any]) -> None:
    """Run what was typed, report, and exit as the result demands."""
    url, key = where_and_key(given["url"], given["key_env"])
    url = url.removesuffix("/v1")
    given = {**given, "salt": given["salt"] or secrets.token_hex(4)}
    outputs = BenchOutputs(given["html"], given["save"], given["as_json"])
    try:
        plan = _plan(given, url, given["model"] or "")
        limits = _limits(given["fail_if"] or [], plan)
        planned = plan.schedule()
        check_outputs({"--html": outputs.html, "--save": outputs.save})
        _make_room(plan.max_in_flight)
        found = on_loop(models_of(url, key))
        plan = _plan(given, url, given["model"] or _first_model(found, url))
        started = SystemClock().utc().isoformat(timespec="seconds")
        with BenchProgressBar(SystemClock(), plan, len(planned)) as progress:
            gc.freeze()  # what is there stays: collections then look at the run's own only
            try:
                measured = on_loop(load(plan, planned, key, progress))
            finally:
                gc.unfreeze()
    except BadPlan as bad:
        fail(str(bad), code=USAGE)
    except Unreachable as away:
        fail(f"{away}. Start a gateway with: {as_called('serve')}. Or name the server with --url.",
             code=NOT_REACHABLE)  # fmt: skip
    except AccessDenied as refused:
        another = "another key" if key else "a key"
        fail(f"{refused}. Name {another} with --key-env VAR.", code=NOT_ALLOWED)
    except KeyboardInterrupt:
        say("\nInterrupted before anything was measured.")
        raise typer.Exit(INTERRUPTED) from None
    _report(document(measured, plan, started, __version__), outputs, limits)


def on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run that on the fastest loop there is."""
    if sys.platform == "win32":
        return asyncio.run(work)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def _plan(given: dict[str, Any], url: str, model: str) -> LoadPlan:
    kind = _kind(given)
    duration = given["duration"] or (None if kind == "trace" else "30s")
    priorities = given["priorities"]
    for name, value in (("--rate", given["rate"]), ("--speed", given["speed"])):
        if not 0 < value < 1_000_000:
            raise BadPlan(f"{name} must be above 0, and finite.")
    plan = LoadPlan(
        url=url,
        model=model,
        arrivals=kind,
        rate=None if kind == "trace" else given["rate"],
        duration_s=None if duration is None else duration_s(duration, "--duration"),
        warmup_s=duration_s(given["warmup"], "--warmup"),
        trace=str(given["trace"]) if given["trace"] else None,
        speed=given["speed"],
        limit=given["limit"],
        users=parse_mix(given["users"], "--users", "user-"),
        priorities=None if priorities is None else parse_mix(priorities, "--priorities", "p"),
        stream=given["stream"],
        usage=given["usage"],
        max_tokens=given["max_tokens"],
        prompt_tokens=given["prompt_tokens"],
        ignore_eos=given["ignore_eos"],
        seed=given["seed"],
        salt=given["salt"],
        max_in_flight=given["max_in_flight"],
        timeout_s=duration_s(given["timeout"], "--timeout"),
        retries=given["retries"],
        slo_ttft_s=_optional_s(given["slo_ttft"], "--slo-ttft"),
        slo_total_s=_optional_s(given["slo_total"], "--slo-total"),
    )
    _check(plan)
    return plan


def _check(plan: LoadPlan) -> None:
    """See that the numbers make sense together; raises BadPlan."""
    ranges = (
        ("--max-tokens", plan.max_tokens, 1, TOKENS_MAX),
        ("--prompt-tokens", plan.prompt_tokens, 1, TOKENS_MAX),
        ("--max-in-flight", plan.max_in_flight, 1, 50_000),
        ("--retries", plan.retries, 0, 20),
        ("--limit", 1 if plan.limit is None else plan.limit, 1, REQUESTS_MAX),
    )
    for option, value, low, high in ranges:
        if not low <= value <= high:
            raise BadPlan(f"{option} must be between {low} and {high:,}, not {value:,}.")
    if len(plan.salt) > SALT_LENGTH_MAX or not plan.salt.isprintable():
        raise BadPlan(f"--salt: at most {SALT_LENGTH_MAX} letters, digits or signs.")
    if plan.timeout_s <= 0:
        raise BadPlan("--timeout must be above 0.")
    if plan.slo_ttft_s is not None and not plan.stream:
        raise BadPlan("--slo-ttft needs --stream: an answer in one piece has no first token.")


def _kind(given: dict[str, Any]) -> Kind:
    """Return how requests arrive: a trace implies its own way; raises BadPlan."""
    kind: str = given["arrivals"] or ("trace" if given["trace"] else "poisson")
    if kind == "trace" and not given["trace"]:
        raise BadPlan("--arrivals trace needs a file: --trace FILE.csv")
    if kind != "trace" and given["trace"]:
        raise BadPlan(f"--trace brings its own arrivals: leave --arrivals {kind} out.")
    for known in get_args(Kind):
        if kind == known:
            found: Kind = known
            return found
    raise BadPlan(f"--arrivals: poisson, constant or trace, not {kind!r}.")


def _optional_s(text: str | None, option: str) -> float | None:
    return None if text is None else duration_s(text, option)


def _limits(texts: list[str], plan: LoadPlan) -> list[Limit]:
    names = (plan.priorities or ONE_PRIORITY).names + plan.users.names
    return [parse_limit(text, names) for text in texts]


def _first_model(found: list[str] | None, url: str) -> str:
    if not found:
        raise BadPlan(f"{url} lists no models. Name one with --model.")
    return found[0]


def _make_room(connections: int) -> None:
    """Raise the limit of open files to what the connections need; raises BadPlan."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise BadPlan(
            f"--max-in-flight {connections} needs {needed} open files, and {hard} are allowed "
            "here. Lower it, or raise the limit (ulimit -n)."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _report(made: Document, outputs: BenchOutputs, limits: list[Limit]) -> NoReturn:
    """Write and print what was found, and exit accordingly."""
    broken = broken_limits(limits, made.summary)
    _hand_out(made, outputs, broken)
    for one in broken:
        complain(f"--fail-if {one}.")
    if made.summary.is_interrupted:
        raise typer.Exit(INTERRUPTED)
    if not made.summary.all.ok:
        _nothing(made)
    raise typer.Exit(BROKEN_LIMIT if broken else 0)


def _hand_out(made: Document, outputs: BenchOutputs, broken: list[Broken]) -> None:
    if outputs.save is not None:
        write(outputs.save, encode(made))
    if outputs.html is not None:
        write(outputs.html, page(run_report(made, broken)))
    if outputs.as_json:
        tell(encode(made))
        return
    report(made)
    for word, path in (("Report", outputs.html), ("Run", outputs.save)):
        if path is not None:
            tell(f"{word}: {path}")


def _nothing(made: Document) -> NoReturn:
    codes = made.summary.all.by_code
    if set(codes) <= {"connect_failed", "connection_lost"} and codes:
        fail(f"{made.settings.url} could not be reached any more.", code=NOT_REACHABLE)
    reason = ", ".join(f"{count:,} {code}" for code, count in codes.items())
    fail(f"no request succeeded ({reason or 'none was answered'}).", code=FAILED)
