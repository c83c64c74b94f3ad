"""Options that several commands have, for the settings that they read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.offers import settings as offered_settings

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file; default: FOREBAY_CONFIG, ./forebay.toml, "
        "~/.config/forebay/forebay.toml or /etc/forebay/forebay.toml.",
    ),
]
SetOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override one setting; may be repeated.",
        autocompletion=offered_settings,
    ),
]
