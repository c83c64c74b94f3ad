"""The options of `forebay sim`, each with what it means."""

from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.offers import settings as offered_settings

From = Annotated[
    Path,
    typer.Option("--from", metavar="FILE", help="An access log, or a trace in CSV or JSON lines."),
]
Nodes = Annotated[
    str | None,
    typer.Option(metavar="NODES", help='COUNTxNAME:SLOTS[,...]: "3xgpu:8". Else those of the log.'),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting of the queue, as key=value; repeatable.",
        autocompletion=offered_settings,
    ),
]
Scale = Annotated[
    float, typer.Option(metavar="X", help="Number of users, as a multiple of the recorded number.")
]
Speed = Annotated[
    float,
    typer.Option(metavar="X", help="Speed of the nodes, as a multiple of the recorded speed."),
]
LoadSeconds = Annotated[
    float | None,
    typer.Option(
        metavar="S",
        help="Time to load a model if a node holds one at a time; 0: nodes hold all models. "
        "Default: estimated from the log.",
    ),
]
Users = Annotated[
    str | None,
    typer.Option(
        metavar="MIX",
        help='Users of requests without one: a number, or names and weights: "alice:1,bob:3".',
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of the random choices.")]
Variants = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CHANGES",
        help='Another column: "nodes=4xgpu:8 scale=2 queue.fairness=fifo"; repeatable.',
    ),
]
FailIf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COND",
        help='Exit with status 5 if this holds in a variant: "wait_p95>2s", "refused>0".',
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the figures as JSON instead of tables.")
]
