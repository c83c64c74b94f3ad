"""The options of `forebay bench`, each with what it means."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

_load = partial(typer.Option, rich_help_panel="What is sent")
_who = partial(typer.Option, rich_help_panel="For whom")
_edge = partial(typer.Option, rich_help_panel="Limits")
_out = partial(typer.Option, rich_help_panel="Results")

Model = Annotated[
    str | None, _load(metavar="M", help="Model to use; default: the first one listed.")
]
Rate = Annotated[float, _load(metavar="R", help="Requests per second, on average.")]
Duration = Annotated[
    str | None,
    _load(
        metavar="T",
        help="Duration of the load, such as 30s or 5m; default: 30s, or that of the trace.",
    ),
]
Warmup = Annotated[
    str,
    _load(metavar="T", help="Warm-up time before the measurement; its requests are not counted."),
]
Arrivals = Annotated[
    str | None, _load(metavar="KIND", help="poisson (the default), constant, or trace.")
]
Trace = Annotated[
    Path | None, _load(metavar="F.csv", help="Trace to replay: times, input and output tokens.")
]
Speed = Annotated[
    float, _load(metavar="X", help="Speed of the replay, as a multiple of the recorded speed.")
]
Count = Annotated[int | None, _load("--limit", metavar="N", help="Maximum number of requests.")]
Stream = Annotated[bool, _load("--stream/--no-stream", help="Request streamed answers.")]
MaxTokens = Annotated[int, _load(metavar="N", help="Maximum tokens of an answer.")]
PromptTokens = Annotated[int, _load(metavar="N", help="Approximate tokens of a prompt.")]
IgnoreEos = Annotated[
    bool,
    _load("--ignore-eos", help="Ask the server to ignore the end token (vLLM, SGLang, llama.cpp)."),
]
Usage = Annotated[
    bool,
    _load(
        "--usage/--no-usage",
        help="Request token counts in streams; some servers refuse this.",
    ),
]
Seed = Annotated[int, _load(metavar="N", help="Seed of the arrival times, users and lengths.")]
Salt = Annotated[
    str | None,
    _load(
        metavar="TEXT",
        help="Makes prompts differ between runs; default: random.",
    ),
]
Users = Annotated[
    str, _who(metavar="MIX", help='Number of users, or names and their shares: "alice:1,bob:3".')
]
Priorities = Annotated[
    str | None, _who(metavar="MIX", help='Priorities and their shares: "high:1,normal:8,low:1".')
]
MaxInFlight = Annotated[
    int,
    _edge(
        metavar="N",
        help="Maximum concurrent requests; requests due beyond it are counted as not sent.",
    ),
]
Timeout = Annotated[str, _edge(metavar="T", help="Time limit of a request.")]
Retries = Annotated[
    int, _edge(metavar="N", help="Retries after 429 and 503, with the delay of Retry-After.")
]
SloTtft = Annotated[
    str | None,
    _out(
        metavar="T", help="Count in goodput only answers whose first token came within this time."
    ),
]
SloTotal = Annotated[
    str | None,
    _out(metavar="T", help="Count in goodput only answers that were complete within this time."),
]
FailIf = Annotated[
    list[str] | None,
    _out(metavar="COND", help='Exit with 5 if so: "ttft_p95>2s", "high:errors>0"; repeatable.'),
]
Html = Annotated[Path | None, _out(metavar="F.html", help="Write a report with plots.")]
Save = Annotated[
    Path | None, _out(metavar="F.json", help="Write the run as JSON, to compare or to keep.")
]
AsJson = Annotated[bool, _out("--json", help="Print the run as JSON instead of tables.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The server; a bare URL works, too. Default: FOREBAY_URL, else the address in the "
        "settings, else http://127.0.0.1:7800.",
    ),
]
Key = Annotated[
    str,
    typer.Option(
        "--key-env",
        metavar="VAR",
        show_default=False,
        help="Environment variable with the API key for the server; default: FOREBAY_API_KEY.",
    ),
]
