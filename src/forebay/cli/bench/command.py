"""`forebay bench`: load any OpenAI-compatible server, and say how it did."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from forebay.cli.bench import options
from forebay.cli.gateway import AsJson

EPILOG = (
    "Exits with 0 when it was measured, 1 when nothing succeeded, 2 for a usage error, 3 when the "
    "server cannot be reached, 4 when it wants a key, 5 when a --fail-if holds, 130 after Ctrl-C, "
    "which still reports. What the numbers mean: docs/bench.md."
)


class BenchGroup(TyperGroup):
    """Takes the address as a bare word, too: `forebay bench http://gpu1:8000`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read a word that is an address as `--url` has it."""
        words: list[str] = []
        for word in args:
            is_address = word.startswith(("http://", "https://"))
            words += ["--url", word] if is_address and words[-1:] != ["--url"] else [word]
        return super().parse_args(ctx, words)


bench_app = typer.Typer(
    name="bench",
    cls=BenchGroup,
    invoke_without_command=True,
    epilog=EPILOG,
    subcommand_metavar="[URL] | compare A.json B.json",
)


@bench_app.callback()
def bench(  # noqa: PLR0913 - Typer reads the options from the signature
    context: typer.Context,
    *,
    url: options.Url = None,
    key_env: options.Key = "",
    model: options.Model = None,
    rate: options.Rate = 5.0,
    duration: options.Duration = None,
    warmup: options.Warmup = "0s",
    arrivals: options.Arrivals = None,
    trace: options.Trace = None,
    speed: options.Speed = 1.0,
    limit: options.Count = None,
    stream: options.Stream = True,
    max_tokens: options.MaxTokens = 64,
    prompt_tokens: options.PromptTokens = 64,
    ignore_eos: options.IgnoreEos = False,
    usage: options.Usage = True,
    seed: options.Seed = 0,
    salt: options.Salt = None,
    users: options.Users = "1",
    priorities: options.Priorities = None,
    max_in_flight: options.MaxInFlight = 500,
    timeout: options.Timeout = "120s",
    retries: options.Retries = 0,
    slo_ttft: options.SloTtft = None,
    slo_total: options.SloTotal = None,
    fail_if: options.FailIf = None,
    html: options.Html = None,
    save: options.Save = None,
    as_json: options.AsJson = False,
) -> None:
    """Load-test an OpenAI-compatible server.

    Requests go out when they are due, whatever became of the others (open
    loop), and each is timed from when it was due. Any server will do; a Forebay
    gateway also tells how long requests stood in line.
    """
    if context.invoked_subcommand is not None:
        return
    from forebay.cli.bench import run  # slow to import, and --help must be quick

    run.start(context.params)


@bench_app.command("compare")
def compare(
    a: Annotated[Path, typer.Argument(metavar="A.json", help="First run, written with --save.")],
    b: Annotated[
        Path, typer.Argument(metavar="B.json", help="Second run, compared with the first.")
    ],
    html: Annotated[
        Path | None, typer.Option(metavar="F.html", help="Write a report with plots.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show two runs side by side, and which differences are more than noise."""
    from forebay.cli.bench import report  # slow to import, and --help must be quick

    report.start_comparison(a, b, html, as_json)
