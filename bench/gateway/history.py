"""What earlier runs gave, one JSON line for each build and payload, so that a drift is seen."""

import json
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from rich.table import Table

RUNS_SHOWN = 8
DRIFT_SHOWN = 0.05  # of the ratio: less is noise even with five starts

Line = dict[str, object]


def commit_of(folder: Path) -> str:
    """Return the commit of the sources, with a + where they differ from it."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def lines_of(
    results: Mapping[str, Mapping[str, Mapping[str, object]]], commit: str, *, quick: bool
) -> list[Line]:
    """Return what is kept of a run: our builds' ratios, payload by payload."""
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ")
    return [
        {
            "date": date,
            "commit": commit,
            "build": build,
            "payload": payload,
            "quick": quick,
            "starts": figures["starts"],
            "per_cpu_s": figures["per_cpu_s"],
            "to_haproxy": figures["to_haproxy"],
            "to_bare_relay": figures["to_bare_relay"],
        }
        for payload, gateways in results.items()
        for build, figures in gateways.items()
        if build.startswith("forebay") and figures.get("to_haproxy")
    ]


def append(path: Path, lines: Iterable[Line]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def read(path: Path) -> list[Line]:
    """Return all lines; none where there is no history yet."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def drift(ratios: list[float]) -> float | None:
    """Return the change of the last to the median of those before; None where none is.

    >>> drift([0.4, 0.5, 0.6, 0.4]), drift([0.4])
    (-0.2, None)
    """
    return round(ratios[-1] / median(ratios[:-1]) - 1, 3) if len(ratios) > 1 else None


def table(lines: list[Line]) -> Table:
    """Draw the ratio to HAProxy of each build and payload, a column for each of the last runs."""
    runs = dict.fromkeys((line["date"], line["commit"], line["quick"]) for line in lines)
    shown = list(runs)[-RUNS_SHOWN:]
    drawn = Table(
        title="Calls/CPU s to HAProxy's: the last runs; drift is to the median of those before",
        title_justify="left",
    )
    drawn.add_column("payload")
    drawn.add_column("build")
    for date, commit, quick in shown:
        when = f"{str(date)[:10]}{' quick' if quick else ''}"
        drawn.add_column(f"{commit}\n[dim]{when}[/dim]", justify="right")
    drawn.add_column("drift", justify="right")
    cells = {
        tuple(line[key] for key in ("payload", "build", "date", "commit", "quick")): _median(line)
        for line in lines
    }
    for payload, build in sorted({(str(line["payload"]), str(line["build"])) for line in lines}):
        found = [cells.get((payload, build, *run)) for run in shown]
        change = drift([ratio for ratio in found if ratio])
        mark = "[red]" if change is not None and change < -DRIFT_SHOWN else ""
        words = [f"{ratio:.3f}" if ratio else "-" for ratio in found]
        drawn.add_row(payload, build, *words, f"{mark}{change:+.1%}" if change is not None else "-")
    return drawn


def _median(line: Line) -> float | None:
    ratio = line["to_haproxy"]
    return float(ratio["median"]) if isinstance(ratio, Mapping) else None
