"""The options of `forebay bench`, each with what it means."""

from pathlib import Path
from typing import Annotated

import typer

LOAD = "What is sent"
WHO = "For whom"
EDGE = "Limits"
OUT = "What comes of it"

Model = Annotated[
    str | None,
    typer.Option(metavar="M", help="Model to ask; else the first that is listed.",
                 rich_help_panel=LOAD),
]  # fmt: skip
Rate = Annotated[
    float,
    typer.Option(metavar="R", help="Requests a second, on average.", rich_help_panel=LOAD),
]
Duration = Annotated[
    str | None,
    typer.Option(metavar="T", help="How long requests come: 30s, 5m; 30s unless a trace says else.",
                 rich_help_panel=LOAD, show_default=False),
]  # fmt: skip
Warmup = Annotated[
    str,
    typer.Option(metavar="T", help="Before that, requests that are sent and not measured.",
                 rich_help_panel=LOAD),
]  # fmt: skip
Arrivals = Annotated[
    str | None,
    typer.Option(metavar="KIND", help="poisson (the default), constant, or trace.",
                 rich_help_panel=LOAD, show_default=False),
]  # fmt: skip
Trace = Annotated[
    Path | None,
    typer.Option(metavar="F.csv", rich_help_panel=LOAD, show_default=False,
                 help="Replay this file: times, and tokens in and out."),
]  # fmt: skip
Speed = Annotated[
    float,
    typer.Option(metavar="X", help="Replay a trace so many times as fast.", rich_help_panel=LOAD),
]
Count = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", help="Send at most so many requests.",
                 rich_help_panel=LOAD, show_default=False),
]  # fmt: skip
Stream = Annotated[
    bool,
    typer.Option("--stream/--no-stream", help="Ask for answers word by word.",
                 rich_help_panel=LOAD),
]  # fmt: skip
MaxTokens = Annotated[
    int,
    typer.Option(metavar="N", help="Longest answer.", rich_help_panel=LOAD),
]
PromptTokens = Annotated[
    int,
    typer.Option(metavar="N", help="Length of the prompts, about.",
                 rich_help_panel=LOAD),
]  # fmt: skip
IgnoreEos = Annotated[
    bool,
    typer.Option("--ignore-eos", rich_help_panel=LOAD,
                 help="Ask for the whole length; vLLM, SGLang and llama.cpp know how."),
]  # fmt: skip
Usage = Annotated[
    bool,
    typer.Option("--usage/--no-usage", rich_help_panel=LOAD,
                 help="Ask streams for their count of tokens; some servers refuse that."),
]  # fmt: skip
Seed = Annotated[
    int,
    typer.Option(metavar="N", rich_help_panel=LOAD,
                 help="The same seed sends at the same times, for the same users."),
]  # fmt: skip
Salt = Annotated[
    str | None,
    typer.Option(metavar="TEXT", rich_help_panel=LOAD, show_default=False,
                 help="Makes the prompts differ from other runs': new each time unless named."),
]  # fmt: skip
Users = Annotated[
    str,
    typer.Option(metavar="MIX", rich_help_panel=WHO,
                 help='So many users, or names and their shares: "alice:1,bob:3".'),
]  # fmt: skip
Priorities = Annotated[
    str | None,
    typer.Option(metavar="MIX", rich_help_panel=WHO, show_default=False,
                 help='Priorities and their shares: "high:1,normal:8,low:1".'),
]  # fmt: skip
MaxInFlight = Annotated[
    int,
    typer.Option(metavar="N", rich_help_panel=EDGE,
                 help="At most so many under way; what is due beyond that is counted as not sent."),
]  # fmt: skip
Timeout = Annotated[
    str,
    typer.Option(metavar="T", help="Give up on an answer after this.", rich_help_panel=EDGE),
]
Retries = Annotated[
    int,
    typer.Option(metavar="N", rich_help_panel=EDGE,
                 help="Ask again after 429 and 503, as Retry-After says."),
]  # fmt: skip
SloTtft = Annotated[
    str | None,
    typer.Option(metavar="T", rich_help_panel=OUT, show_default=False,
                 help="Goodput counts only answers whose first token came within this."),
]  # fmt: skip
SloTotal = Annotated[
    str | None,
    typer.Option(metavar="T", rich_help_panel=OUT, show_default=False,
                 help="Goodput counts only answers that were whole within this."),
]  # fmt: skip
FailIf = Annotated[
    list[str] | None,
    typer.Option(metavar="COND", rich_help_panel=OUT, show_default=False,
                 help='Exit with 5 if so: "ttft_p95>2s", "high:errors>0"; repeatable.'),
]  # fmt: skip
Html = Annotated[
    Path | None,
    typer.Option(metavar="F.html", help="Write a report with plots.", rich_help_panel=OUT,
                 show_default=False),
]  # fmt: skip
Save = Annotated[
    Path | None,
    typer.Option(metavar="F.json", help="Write the run as JSON, to compare or to keep.",
                 rich_help_panel=OUT, show_default=False),
]  # fmt: skip
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print the run as JSON instead of tables.", rich_help_panel=OUT),
]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", show_default=False,
                 help="The server; a bare URL does, too. Else as ./forebay.toml and FOREBAY_* say, "
                 "http://127.0.0.1:7800 by default."),
]  # fmt: skip
Key = Annotated[
    str,
    typer.Option("--key-env", metavar="VAR", show_default=False,
                 help="Environment variable with the key to use, where the server wants one."),
]  # fmt: skip
