"""The options of `forebay bench`, each with what it means."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

_load = partial(typer.Option, rich_help_panel="What is sent")
_who = partial(typer.Option, rich_help_panel="For whom")
_edge = partial(typer.Option, rich_help_panel="Limits")
_out = partial(typer.Option, rich_help_panel="What comes of it")

Model = Annotated[
    str | None, _load(metavar="M", help="Model to ask; else the first that is listed.")
]
Rate = Annotated[float, _load(metavar="R", help="Requests a second, on average.")]
Duration = Annotated[
    str | None,
    _load(metavar="T", help="How long requests come: 30s, 5m; 30s unless a trace says else."),
]
Warmup = Annotated[
    str, _load(metavar="T", help="Before that, requests that are sent and not measured.")
]
Arrivals = Annotated[
    str | None, _load(metavar="KIND", help="poisson (the default), constant, or trace.")
]
Trace = Annotated[
    Path | None, _load(metavar="F.csv", help="Replay this file: times, and tokens in and out.")
]
Speed = Annotated[float, _load(metavar="X", help="Replay a trace so many times as fast.")]
Count = Annotated[int | None, _load("--limit", metavar="N", help="Send at most so many requests.")]
Stream = Annotated[bool, _load("--stream/--no-stream", help="Ask for answers word by word.")]
MaxTokens = Annotated[int, _load(metavar="N", help="Longest answer.")]
PromptTokens = Annotated[int, _load(metavar="N", help="Length of the prompts, about.")]
IgnoreEos = Annotated[
    bool,
    _load("--ignore-eos", help="Ask for the whole length; vLLM, SGLang and llama.cpp know how."),
]
Usage = Annotated[
    bool,
    _load(
        "--usage/--no-usage",
        help="Ask streams for their count of tokens; some servers refuse that.",
    ),
]
Seed = Annotated[
    int, _load(metavar="N", help="The same seed sends at the same times, for the same users.")
]
Salt = Annotated[
    str | None,
    _load(
        metavar="TEXT",
        help="Makes the prompts differ from other runs': new each time unless named.",
    ),
]
Users = Annotated[
    str, _who(metavar="MIX", help='So many users, or names and their shares: "alice:1,bob:3".')
]
Priorities = Annotated[
    str | None, _who(metavar="MIX", help='Priorities and their shares: "high:1,normal:8,low:1".')
]
MaxInFlight = Annotated[
    int,
    _edge(
        metavar="N",
        help="At most so many under way; what is due beyond that is counted as not sent.",
    ),
]
Timeout = Annotated[str, _edge(metavar="T", help="Give up on an answer after this.")]
Retries = Annotated[
    int, _edge(metavar="N", help="Ask again after 429 and 503, as Retry-After says.")
]
SloTtft = Annotated[
    str | None,
    _out(metavar="T", help="Goodput counts only answers whose first token came within this."),
]
SloTotal = Annotated[
    str | None, _out(metavar="T", help="Goodput counts only answers that were whole within this.")
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
        help="The server; a bare URL does, too. Else FOREBAY_URL, else as the settings here "
        "say, http://127.0.0.1:7800 by default.",
    ),
]
Key = Annotated[
    str,
    typer.Option(
        "--key-env",
        metavar="VAR",
        show_default=False,
        help="Environment variable with the key to use, where the server wants one; "
        "else FOREBAY_API_KEY.",
    ),
]
