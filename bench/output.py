"""What every benchmark prints and keeps: tables as wide as they need, and the last raw results."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
WIDTH_MIN = 200


def console() -> Console:
    found = Console()
    return found if found.width >= WIDTH_MIN else Console(width=WIDTH_MIN)


def table(title: str, *headings: str) -> Table:
    """Return an empty table: names on the left, figures on the right."""
    made = Table(title=title, title_justify="left")
    for number, heading in enumerate(headings):
        made.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return made


def keep(path: Path, found: object) -> None:
    """Write raw results, with the machine they were taken on."""
    machine = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine, "results": found}, indent=1) + "\n")
    print(f"raw results: {path.name}")
