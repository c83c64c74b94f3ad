"""Build the settings from flags, the environment and a file, and report every problem at once.

Problems that pydantic finds are translated: which key, what is wrong, what to write instead. Values
are shown only where they cannot be secret: numbers, and words out of a short list.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from math import isnan
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from forebay.settings.environment import current_environment
from forebay.settings.errors import REFUSED, SettingsError, SettingsProblem
from forebay.settings.keys import KeySettings
from forebay.settings.model import Settings
from forebay.settings.names import blocks, nearest, sections, valid_keys
from forebay.settings.nodes import NodeSettings
from forebay.settings.places import settings_file
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
    line_of,
    read_file,
    read_toml,
)

WORDS: Mapping[str, tuple[str, str]] = {
    "missing": ("is missing", "add it"),
    "int_type": ("is not a whole number", "write one, without quotes or a decimal point"),
    "int_parsing_size": ("is too large", "write a smaller number"),
    "float_type": ("is not a number", "write one, without quotes"),
    "finite_number": ("is not a finite number", "write an ordinary number"),
    "bool_type": ("is neither true nor false", "write true or false, without quotes"),
    "string_type": ("is not text", 'write it in quotes: "..."'),
    "tuple_type": ("is not a list", 'write one in brackets, such as ["a", "b"]'),
    "mapping_type": ("is not a table", 'write one in braces, such as {{ "name" = value }}'),
    "dict_type": ("is not a table", 'write one in braces, such as {{ "name" = value }}'),
    "model_type": ("is not a table", "write a section with its keys"),
    "literal_error": ("is not one of {expected}", "write one of them"),
    "greater_than_equal": ("is below {ge}", "write {ge} or more"),
    "greater_than": ("is not above {gt}", "write more than {gt}"),
    "less_than_equal": ("is above {le}", "write {le} or less"),
}
QUOTED = re.compile(r"'([^']*)'")
DOTS = ("is a table, not text", 'put a name with dots in it in quotes: "gpt-4.1" = "..."')

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
    """Return the settings of a file (else the one that `places` finds), environment and flags.

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
    environ = current_environment() if environ is None else environ
    path = settings_file(environ) if path is None else path
    found: list[Assignment | SettingsProblem] = []
    broken: list[SettingsProblem] = []
    if path is not None:
        try:
            found += from_mapping(read_toml(path), Origin("file", str(path)))
        except SettingsError as error:
            broken += error.problems
    found += from_environment(environ)
    found += _from_overrides(overrides)
    found += from_flags(flags or {})
    try:
        return _build(found, broken, path)
    except SettingsError as error:
        raise SettingsError(_with_lines(error.problems, path)) from None


def _with_lines(
    problems: Iterable[SettingsProblem], path: Path | None
) -> Iterable[SettingsProblem]:
    """Add the line to what is wrong in the file."""
    text = ""
    if path is not None:
        with suppress(OSError, UnicodeDecodeError):
            text = read_file(path).decode("utf-8-sig")
    for problem in problems:
        line = line_of(text, problem.key) if problem.where == f"file {path}" else None
        yield problem if line is None else problem._replace(where=f"{problem.where}:{line}")


def _from_overrides(overrides: Overrides) -> Found:
    """Return what flags set, in either form."""
    if isinstance(overrides, Mapping):
        return from_flags(overrides)
    return from_texts([overrides] if isinstance(overrides, str) else overrides)


def _build(
    found: Sequence[Assignment | SettingsProblem],
    broken: Sequence[SettingsProblem],
    path: Path | None,
) -> LoadedSettings:
    assignments = [item for item in found if isinstance(item, Assignment)]
    given = _assembled(assignments)
    secrets = {f"env {name}" for name in _variables_of_secrets(given)}
    problems = [
        item for item in found if isinstance(item, SettingsProblem) and item.where not in secrets
    ]
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


def _placed(problem: SettingsProblem, origins: Mapping[str, Origin]) -> SettingsProblem:
    """Add the source of the value that is wrong, where one gave it."""
    head = problem.key.partition("[")[0]
    origin = origins.get(".".join(head.split(".")[:2]))
    return problem._replace(where=str(origin)) if origin is not None else problem


def placed(problems: Iterable[SettingsProblem], loaded: LoadedSettings) -> list[SettingsProblem]:
    """Return problems of settings that were loaded, each with the place of its value."""
    with_origins = (_placed(problem, loaded.origins) for problem in problems)
    with_lines = _with_lines(with_origins, loaded.path)
    return [p._replace(where="") if p.where == str(DEFAULT) else p for p in with_lines]


def parse_node(given: Mapping[str, Any]) -> NodeSettings:
    """Return one node as an operator describes it while the gateway runs; raises SettingsError."""
    try:
        return NodeSettings(**given)
    except ValidationError as error:
        raise SettingsError(problems_of(error, "nodes")) from None


def parse_key(given: Mapping[str, Any]) -> KeySettings:
    """Return a key as an operator describes it while the gateway runs; raises SettingsError."""
    try:
        return KeySettings(**given)
    except ValidationError as error:
        raise SettingsError(problems_of(error, "keys")) from None


def problems_of(error: ValidationError, alone: str = "") -> Iterable[SettingsProblem]:
    """Yield the problems behind a validation error, each with its dotted key.

    `alone` is the kind of block, where the error is of one by itself.
    """
    for details in error.errors(include_url=False):
        key = dotted(details["loc"])
        if details["type"] == REFUSED:
            for problem in details["ctx"]["problems"]:
                joint = "." if key and problem.key else ""
                yield problem._replace(key=f"{key}{joint}{problem.key}")
        elif details["type"] == "extra_forbidden":
            yield _unknown(details["loc"], alone)
        else:
            yield _in_words(key, details)


def dotted(place: tuple[int | str, ...]) -> str:
    """Return a place in the model as people write it.

    >>> dotted(("nodes", 0, "url"))
    'nodes[0].url'
    """
    key = ""
    for part in place:
        if isinstance(part, int):
            key += f"[{part}]"
        elif part != "[key]":
            key += f".{part}" if key else part
    return key


def _unknown(place: tuple[int | str, ...], alone: str) -> SettingsProblem:
    """Suggest a name for one that a block does not know; sections were checked before."""
    *block, name = place
    known = blocks()[str(block[0]) if block else alone].model_fields
    suggestion = dotted((*block, nearest(str(name), known)))
    return SettingsProblem(dotted(place), "is not a setting", f"did you mean {suggestion}?")


def _in_words(key: str, details: ErrorDetails) -> SettingsProblem:
    kind, given = details["type"], details["input"]
    context: dict[str, Any] = details.get("ctx", {})
    if kind == "tuple_type" and key in blocks():
        return SettingsProblem(
            key, "is not a list of blocks", f"write [[{key}]], with two brackets"
        )
    if kind == "string_type" and isinstance(given, Mapping):
        return SettingsProblem(key, *DOTS)
    if isinstance(given, float) and isnan(given):
        return SettingsProblem(key, "is not a number", "write one")
    if kind not in WORDS:
        return SettingsProblem(key, details["msg"], "correct it")
    wrong, instead = WORDS[kind]
    if kind == "literal_error" and (near := _nearest_word(given, context)):
        instead = f'did you mean "{near}"?'
    shown = {name: _plain(value) for name, value in context.items()}
    return SettingsProblem(key, wrong.format(**shown) + _got(given, kind), instead.format(**shown))


def _nearest_word(given: object, context: Mapping[str, Any]) -> str:
    known = QUOTED.findall(str(context.get("expected", "")))
    near = get_close_matches(given.lower()[:40], known, 1, 0.5) if isinstance(given, str) else []
    return near[0] if near else ""


def _plain(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _got(given: object, kind: str) -> str:
    if kind == "literal_error" and isinstance(given, str):
        return f', got "{given[:40]}"'
    return f", got {given}" if isinstance(given, int | float) else ""
