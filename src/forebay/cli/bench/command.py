"""`forebay bench`: load any OpenAI-compatible server, and say how it did."""

from typing import Annotated

import typer

from forebay.cli.bench import options

EPILOG = (
    "Exits with 0 when it was measured, 1 when nothing succeeded, 2 for a usage error, 3 when the "
    "server cannot be reached, 4 when it wants a key, 5 when a --fail-if holds, 130 after Ctrl-C, "
    "which still reports. What the numbers mean: docs/bench.md."
)


def bench(  # noqa: PLR0913 - Typer reads the options from the signature
    context: typer.Context,
    address: Annotated[
        str | None, typer.Argument(metavar="URL", help="The server; the same as --url.")
    ] = None,
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
    from forebay.cli.bench import run  # slow to import, and --help must be quick

    run.start({**context.params, "url": address or url})
