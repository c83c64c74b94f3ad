"""Build the settings from flags, the environment and a file, and say all that is wrong at once."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from forebay.settings.environment import current_environment
from forebay.settings.errors import Problem, SettingsError
from forebay.settings.model import Settings
from forebay.settings.names import blocks, sections, valid_keys
from forebay.settings.nodes import NodeSettings
from forebay.settings.places import line_of
from forebay.settings.queue import PROFILES
from forebay.settings.sources import (
    DEFAULT,
    Assignment,
    Found,
    Origin,
    from_environment,
    from_flags,
    from_mapping,
    from_texts,
)
from forebay.settings.values import read_toml
from forebay.settings.verdicts import problems_of

USUAL_FILE = Path("forebay.toml")

Overrides = Mapping[str, object] | Sequence[str]
"""Flags by dotted key, or the texts of `--set key=value`."""


@dataclass(frozen=True)
class LoadedSettings:
    """The settings, and where each of them came from."""

    settings: Settings
    origins: Mapping[str, Origin]
    """The source of every key, by its dotted name."""
    path: Path | None
    """The file that was read; None where there was none."""


def load_settings(
    path: Path | None = None,
    overrides: Overrides = (),
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Settings:
    """Return the settings of a file (else `./forebay.toml`, else none), environment and flags.

    `flags` are for a command that has both, some flags of its own and `--set`; its own win. A flag
    that is None was not given. Raises `SettingsError` with every problem found.
    """
    return load_with_origins(path, overrides, environ, flags).settings


def load_with_origins(
    path: Path | None = None,
    overrides: Overrides = (),
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> LoadedSettings:
    """Return the settings as `load_settings` does, and where each value came from."""
    if path is None and USUAL_FILE.is_file():
        path = USUAL_FILE
    found: list[Assignment | Problem] = []
    broken: list[Problem] = []
    if path is not None:
        try:
            found += from_mapping(read_toml(path), Origin("file", str(path)))
        except SettingsError as error:
            broken += error.problems
    found += from_environment(current_environment() if environ is None else environ)
    found += _from_overrides(overrides)
    found += from_flags(flags or {})
    try:
        return _build(found, broken, path)
    except SettingsError as error:
        raise SettingsError(_with_lines(error.problems, path)) from None


def _with_lines(problems: Iterable[Problem], path: Path | None) -> Iterable[Problem]:
    """Add the line to what is wrong in the file."""
    text = ""
    if path is not None:
        with suppress(OSError, UnicodeDecodeError):
            text = path.read_text("utf-8-sig")
    for problem in problems:
        line = line_of(text, problem.key) if problem.where == f"file {path}" else None
        yield problem if line is None else problem._replace(where=f"{problem.where}:{line}")


def _from_overrides(overrides: Overrides) -> Found:
    """Return what flags set, in either form."""
    if isinstance(overrides, Mapping):
        return from_flags(overrides)
    return from_texts([overrides] if isinstance(overrides, str) else overrides)


def _build(
    found: Sequence[Assignment | Problem], broken: Sequence[Problem], path: Path | None
) -> LoadedSettings:
    assignments = [item for item in found if isinstance(item, Assignment)]
    given = _assembled(assignments)
    secrets = {f"env {name}" for name in _variables_of_secrets(given)}
    problems = [item for item in found if isinstance(item, Problem) and item.where not in secrets]
    origins = {".".join(item.path[:2]): item.origin for item in assignments}
    try:
        settings = Settings(**given)
    except ValidationError as error:
        wrong = [_placed(problem, origins) for problem in problems_of(error)]
        raise SettingsError([*broken, *problems, *wrong]) from None
    if broken or problems:
        raise SettingsError([*broken, *problems])
    profile = settings.queue.profile
    by_profile = {f"queue.{key}": Origin("profile", profile) for key in PROFILES[profile]}
    everything = dict.fromkeys(valid_keys(), DEFAULT) | by_profile | origins
    return LoadedSettings(settings, everything, path)


def _assembled(assignments: Iterable[Assignment]) -> dict[str, Any]:
    """Return one nested mapping; of two assignments to one place the later counts."""
    given: dict[str, Any] = {}
    for path, value, _ in assignments:
        inner = given
        for name in path[:-1]:
            known = inner.get(name)
            inner[name] = dict(known) if isinstance(known, Mapping) else {}
            inner = inner[name]
        inner[path[-1]] = value
    return given


def _variables_of_secrets(given: Mapping[str, Any]) -> Iterable[str]:
    """Yield the variables that the settings name for secrets: those are no settings themselves."""
    tables = [given.get(name) for name in sections()]
    for name in blocks():
        listed = given.get(name)
        tables += listed if isinstance(listed, list | tuple) else []
    for table in tables:
        if isinstance(table, Mapping):
            yield from (
                value
                for key, value in table.items()
                if key.endswith("_env") and isinstance(value, str)
            )


def _placed(problem: Problem, origins: Mapping[str, Origin]) -> Problem:
    """Add the source of the value that is wrong, where one gave it."""
    head = problem.key.partition("[")[0]
    origin = origins.get(".".join(head.split(".")[:2]))
    return problem._replace(where=str(origin)) if origin is not None else problem


def placed(problems: Iterable[Problem], loaded: LoadedSettings) -> list[Problem]:
    """Return problems of settings that were loaded, each with the place of its value."""
    with_origins = (_placed(problem, loaded.origins) for problem in problems)
    with_lines = _with_lines(with_origins, loaded.path)
    return [p._replace(where="") if p.where == str(DEFAULT) else p for p in with_lines]


def parse_node(given: Mapping[str, Any]) -> NodeSettings:
    """Return one node as an operator describes it while the gateway runs; raises SettingsError."""
    try:
        return NodeSettings(**given)
    except ValidationError as error:
        raise SettingsError(problems_of(error)) from None
