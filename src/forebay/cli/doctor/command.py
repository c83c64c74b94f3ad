"""`forebay doctor`: check what a gateway needs here, and say what to change."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from forebay.cli.doctor.finding import RUNS, problem, warning
from forebay.cli.exits import DONE, FAILED
from forebay.cli.gateway import AsJson  # noqa: TC001 - Typer reads the annotations
from forebay.cli.invocation import as_called
from forebay.cli.options import ConfigFile, SetOptions  # noqa: TC001 - as above
from forebay.cli.output.console import check_config, counted, tell, tell_json
from forebay.cli.output.tables import plain_table, show

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from forebay.cli.doctor.finding import Finding
    from forebay.settings import LoadedSettings, Settings, SettingsProblem

COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


def doctor(config: ConfigFile = None, settings: SetOptions = None, as_json: AsJson = False) -> None:
    """Check what a gateway needs on this machine, and say what to change.

    The settings, the port, the nodes and their slots, the clock, the database, the store of several
    gateways, the limit of open files. Exits with 1 if something keeps a gateway from working, with
    0 if there are only warnings.
    """
    check_config(config)
    from forebay.settings import SettingsError, load_with_origins

    try:
        loaded = load_with_origins(config, settings or ())
        findings = [*_of_settings(loaded), *_of_the_machine(loaded)]
    except SettingsError as error:
        findings = [
            problem("settings", str(each._replace(instead="")).rstrip("; "), each.instead)
            for each in error.problems
        ]
    states: Counter[str] = Counter(finding.state for finding in findings)
    if as_json:
        checks = [finding._asdict() for finding in findings]
        tell_json({"ok": not states["problem"], "checks": checks})
    else:
        given = [("--config", config), *(("--set", each) for each in settings or ())]
        _show(findings, states, [shlex.quote(str(w)) for pair in given if pair[1] for w in pair])
    raise typer.Exit(FAILED if states["problem"] else DONE)


def _of_settings(loaded: LoadedSettings) -> Iterable[Finding]:
    from forebay.cli.config.checks import environment_problems
    from forebay.cli.doctor.finding import fine
    from forebay.settings.loader import placed
    from forebay.settings.review import risks

    place = str(loaded.path) if loaded.path is not None else "no file, so the defaults"
    yield fine("settings", place)
    for each in placed(environment_problems(loaded.settings), loaded):
        yield problem("settings", f"{each.key}: {each.wrong}", each.instead)
    for each in placed([*risks(loaded.settings), *_trusted_keys(loaded.settings)], loaded):
        yield warning("settings", f"{each.key}: {each.wrong}", each.instead)


def _trusted_keys(settings: Settings) -> Iterable[SettingsProblem]:
    """Look for keys that name users at will beside others; only here, because it may be meant."""
    from forebay.settings import SettingsProblem

    for index, key in enumerate(settings.keys):
        if key.trust_user and len(settings.keys) > 1:
            yield SettingsProblem(
                f"keys[{index}].trust_user",
                f"{key.name} may invent users, and each takes turns like the user of another key",
                "give this key only to a program that names real users",
            )


def _of_the_machine(loaded: LoadedSettings) -> Iterable[Finding]:
    from forebay.cli.doctor import machine, servers

    settings = loaded.settings
    yield from machine.check_port(settings.server)
    yield from servers.check_nodes(settings)
    yield from machine.check_clock()
    yield from servers.check_databases(settings)
    yield from servers.check_store(settings.coordination.url)
    yield from machine.check_file_limit(settings.server)


def _show(findings: list[Finding], states: Counter[str], options: Sequence[str]) -> None:
    """Print a table, and how to start with the same settings where nothing is in the way."""
    table = plain_table("Check", "State", "Found", "To do")
    for each in findings:
        state = Text(each.state, COLOURS[each.state])
        table.add_row(each.check, state, each.found, each.instead)
    show(table)
    problems, warnings = (
        counted(states[state], state) if states[state] else f"no {state}s"
        for state in ("problem", "warning")
    )
    if states["problem"]:
        tell(f"{problems}, {warnings}. Nothing was started or changed.")
    elif any(each.check == "port" and RUNS in each.found for each in findings):
        tell(f"{problems.capitalize()}, {warnings}.")
    else:
        start = as_called(" ".join(["serve", *options]))
        tell(f"{problems.capitalize()}, {warnings}. Start the gateway with: {start}")
