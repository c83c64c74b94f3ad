"""Text that becomes a value: TOML files, and the values of flags and variables."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forebay.settings.errors import Problem, SettingsError

POSITION = re.compile(r"\s*\(at line (\d+), column (\d+)\)$")
AT_THE_END = re.compile(r"\s*\(at end of document\)$")
NOTHING = object()


def read_toml(path: Path) -> Mapping[str, object]:
    """Return what a TOML file says.

    Raises `SettingsError` naming the file, and the line and the column of what cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        wrong = f"cannot be read: {error.strerror or error}"
        instead = f"name another file, or write this one: forebay config init {path}"
        raise SettingsError([Problem(str(path), wrong, instead)]) from None
    text = ""
    try:
        text = content.decode("utf-8-sig")
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("utf-8", "replace")
        raise _broken(path, "not UTF-8", _end_of(before), "save it as UTF-8") from None
    except RecursionError:
        raise SettingsError([Problem(str(path), "is nested too deep", "make it flatter")]) from None
    except ValueError as error:
        raise _broken(path, *_where(str(error), text), "correct it there") from None


def _where(message: str, text: str) -> tuple[str, tuple[int, int]]:
    """Split what tomllib says into the reason and the place."""
    place = POSITION.search(message)
    if place is not None:
        return message[: place.start()], (int(place[1]), int(place[2]))
    return AT_THE_END.sub("", message), _end_of(text)


def _end_of(text: str) -> tuple[int, int]:
    return text.count("\n") + 1, len(text) - text.rfind("\n")


def _broken(path: Path, reason: str, place: tuple[int, int], instead: str) -> SettingsError:
    line, column = place
    wrong = f"line {line}, column {column}: {reason[:1].lower()}{reason[1:]}"
    return SettingsError([Problem(str(path), wrong, instead)])


def parse_key(text: str) -> tuple[str, ...] | None:
    """Return the parts of a dotted key, quoted where they hold dots; None where it is not one.

    >>> parse_key('models.aliases."gpt-4.1"'), parse_key("a b")
    (('models', 'aliases', 'gpt-4.1'), None)
    """
    inner = _toml(f"{text} = 0")
    path: list[str] = []
    while isinstance(inner, dict) and len(inner) == 1:
        ((name, inner),) = inner.items()
        path.append(name)
    return tuple(path) if inner == 0 and path else None


def parse_value(raw: str, takes_text: bool) -> object:
    """Return a value written as TOML or as JSON, else the text itself.

    >>> parse_value("5", False), parse_value("5", True), parse_value('{"high": 8}', False)
    (5, '5', {'high': 8})
    """
    parsed = _toml(f"value = {raw}")
    is_toml = isinstance(parsed, dict) and len(parsed) == 1
    value = parsed["value"] if is_toml else _json(raw)
    if value is NOTHING or (takes_text and not isinstance(value, str)):
        return raw.strip()
    return value


def _toml(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return NOTHING


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return NOTHING
