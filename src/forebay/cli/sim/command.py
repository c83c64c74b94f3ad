"""`forebay sim`: replay recorded traffic with other nodes or settings."""

import typer

from forebay.cli.options import ConfigFile
from forebay.cli.sim import options

EPILOG = (
    "Exits with 0 when it was replayed, 2 for a usage error, 5 when a --fail-if holds in one of "
    "the variants. What is fitted and what is not known: docs/planning.md."
)


def sim(  # noqa: PLR0913 - Typer reads the options from the signature
    context: typer.Context,
    *,
    from_: options.From,
    nodes: options.Nodes = None,
    set_: options.Set = None,
    config: ConfigFile = None,
    scale: options.Scale = 1.0,
    speed: options.Speed = 1.0,
    load_seconds: options.LoadSeconds = None,
    users: options.Users = None,
    seed: options.Seed = 0,
    variant: options.Variants = None,
    fail_if: options.FailIf = None,
    as_json: options.AsJson = False,
) -> None:
    """Replay recorded traffic in virtual time, with other nodes, other settings or more users.

    The scheduler is the gateway's own; a day takes less than a minute. Nothing
    is sent anywhere.
    """
    from forebay.cli.sim import run  # slow to import, and --help must be quick

    run.start(context.params)
