"""Read settings from flags, the environment and a TOML file into a list of assignments.

An assignment sets one key of one section, or one entry of a key that maps names to values, or a
whole list of blocks. So a later source changes the keys that it names and leaves the others alone.
"""

import json
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple

from forebay.settings.errors import SettingsError, SettingsProblem
from forebay.settings.names import (
    PREFIX,
    blocks,
    has_text_entries,
    is_mapping,
    is_text,
    nearest,
    sections,
    valid_keys,
    variable_of,
)
from forebay.settings.places import PROGRAM_VARIABLES

FILE_BYTES_MAX = 2**20
"""Of a file of settings: ten thousand keys and nodes are below half of it."""
POSITION = re.compile(r"\s*\(at line (\d+), column (\d+)\)$")
AT_THE_END = re.compile(r"\s*\(at end of document\)$")
NOTHING = object()
HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?")
ASSIGNMENT = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'|\s*\.\s*)+?)\s*=""")
PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
LONG_TEXT = re.compile(r'"""|' + "'''")

KUBERNETES = re.compile(
    r"FOREBAY(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)"
)
"""What Kubernetes sets by itself for a Service called forebay; no setting looks like it."""
KUBERNETES_PORT = re.compile(r"(tcp|udp|sctp)://\S+")


class Origin(NamedTuple):
    """Where a value came from."""

    kind: Literal["default", "profile", "file", "env", "flag"]
    name: str = ""
    """The file, the variable, the flag or the profile."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


DEFAULT = Origin("default")


class Assignment(NamedTuple):
    """One value for one place."""

    path: tuple[str, ...]
    value: object
    origin: Origin


Found = Iterable[Assignment | SettingsProblem]
"""What a source yields: what it sets, and what is wrong with it."""


def from_mapping(given: Mapping[str, object], origin: Origin) -> Found:
    """Yield what a parsed file sets."""
    for name, value in given.items():
        yield from _assign((name,), value, origin)


def from_flags(given: Mapping[str, object]) -> Found:
    """Yield what flags set: dotted keys with their values; None is a flag that was not given."""
    for key, value in given.items():
        if value is not None:
            yield from _assign(tuple(key.split(".")), value, Origin("flag", _option(key)))


def _option(key: str) -> str:
    """Return the option by which a setting is given: it has the last name of its key.

    >>> _option("server.port"), _option("sessions.max_pending_prompts"), _option("nodes")
    ('--port', '--max-pending-prompts', '--node')
    """
    last = key.rpartition(".")[2].replace("_", "-")
    return "--node" if last == "nodes" else f"--{last}"


def from_texts(given: Iterable[str]) -> Found:
    """Yield what `--set key=value` sets; the last one of a key counts."""
    for text in given:
        key, equals, raw = text.partition("=")
        path = parse_key(key)
        origin = Origin("flag", f"--set {key.strip()}")
        if not equals or path is None:
            wrong = "is not of the form key=value"
            yield SettingsProblem(
                key.strip() or text, wrong, "write one such as queue.max_size=50", "--set"
            )
        else:
            yield from _assign(path, parse_value(raw, _takes_text(path)), origin)


def from_environment(environ: Mapping[str, str]) -> Found:
    """Yield what `FOREBAY_*` sets; `__` nests, and the more exact of two names counts."""
    named = [
        (tuple(name[len(PREFIX) :].lower().split("__")), name)
        for name in environ
        if name.upper().startswith(PREFIX) and not _is_no_setting(name, environ[name])
    ]
    for path, name in sorted(named, key=lambda pair: (len(pair[0]), pair[1])):
        value = parse_value(environ[name], _takes_text(path))
        yield from _assign(path, value, Origin("env", name))


def _is_no_setting(name: str, value: str) -> bool:
    """Say whether a variable is for the program itself, or from Kubernetes."""
    if name in PROGRAM_VARIABLES or KUBERNETES.fullmatch(name):
        return True
    return name.endswith("_PORT") and KUBERNETES_PORT.fullmatch(value) is not None


def _takes_text(path: tuple[str, ...]) -> bool:
    field = sections().get(path[0], {}).get(path[1]) if len(path) > 1 else None
    if field is None:
        return False
    return is_text(field) if len(path) == 2 else has_text_entries(field)


def _assign(path: tuple[str, ...], value: object, origin: Origin) -> Found:
    section = path[0]
    if section in blocks():
        yield _whole_list(path, value, origin)
    elif section not in sections():
        yield from _unknown(path, value, origin)
    elif len(path) > 1:
        yield _one_key(path, value, origin)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield _one_key((section, str(name)), inner, origin)
    else:
        instead = f"name one of its keys, such as {section}.{next(iter(sections()[section]))}"
        yield SettingsProblem(section, "is a section, not a value", instead, str(origin))


def _whole_list(
    path: tuple[str, ...], value: object, origin: Origin
) -> Assignment | SettingsProblem:
    if len(path) == 1:
        return Assignment(path, value, origin)
    instead = f'set all of it: {path[0]}=[{{name = "...", ...}}], or use the file'
    return SettingsProblem(".".join(path), f"{path[0]} is a list of blocks", instead, str(origin))


def _one_key(path: tuple[str, ...], value: object, origin: Origin) -> Assignment | SettingsProblem:
    section, name, *entry = path
    field = sections()[section].get(name)
    if field is None or (entry and not is_mapping(field)):
        return _unknown_key(".".join(path), origin)
    # A model's name may hold dots: what follows the key is one name.
    return Assignment((section, name, *([".".join(entry)] if entry else [])), value, origin)


def _unknown(path: tuple[str, ...], value: object, origin: Origin) -> Found:
    """Yield one problem for each key of a section that does not exist.

    Only of a file: a variable that is no setting may hold a secret, so nothing of it is shown.
    """
    if origin.kind == "file" and isinstance(value, Mapping) and value:
        for name in value:
            yield _unknown_key(f"{path[0]}.{name}", origin)
    else:
        yield _unknown_key(".".join(path), origin)


def _unknown_key(key: str, origin: Origin) -> SettingsProblem:
    plain = [name.removeprefix(PREFIX) for name in PROGRAM_VARIABLES]
    if origin.kind == "env" and (near := get_close_matches(key.upper(), plain, 1, 0.8)):
        return SettingsProblem(
            key, "is not a setting", f"did you mean {PREFIX}{near[0]}?", str(origin)
        )
    known = nearest(key, valid_keys())
    written = f"{known} ({variable_of(known)})" if origin.kind == "env" else known
    return SettingsProblem(key, "is not a setting", f"did you mean {written}?", str(origin))


def read_toml(path: Path) -> Mapping[str, object]:
    """Return what a TOML file says.

    Raises `SettingsError` naming the file, and the line and the column of what cannot be read.
    """
    try:
        content = read_file(path)
    except OSError as error:
        wrong = f"cannot be read: {error.strerror or error}"
        instead = f"name another file, or write this one: forebay config init {path}"
        raise SettingsError([SettingsProblem(str(path), wrong, instead)]) from None
    if len(content) > FILE_BYTES_MAX:
        wrong = f"is larger than {FILE_BYTES_MAX // 2**20} MiB"
        raise SettingsError([SettingsProblem(str(path), wrong, "name another file")])
    text = ""
    try:
        text = content.decode("utf-8-sig")
        return tomllib.loads(text)
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("utf-8", "replace")
        raise _broken(path, "not UTF-8", _end_of(before), "save it as UTF-8") from None
    except RecursionError:
        raise SettingsError(
            [SettingsProblem(str(path), "is nested too deep", "make it flatter")]
        ) from None
    except ValueError as error:
        raise _broken(path, *_where(str(error), text), "correct it there") from None


def read_file(path: Path) -> bytes:
    """Return what is in a file, one byte too many where that is too much; raises OSError.

    Only of a regular file: another one, such as a pipe, may never end, or wait for its writer.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("it is not a regular file")
        return file.read(FILE_BYTES_MAX + 1)


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
    return SettingsError([SettingsProblem(str(path), wrong, instead)])


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


def line_of(text: str, key: str) -> int | None:
    """Return the line of a dotted key, or of the nearest table that is to hold it.

    >>> text = '[queue]\\nmax_size = 1\\n[[nodes]]\\nname = "a"\\n[[nodes]]\\nurl = "b"\\n'
    >>> line_of(text, "queue.max_size"), line_of(text, "nodes[1].url"), line_of(text, "jobs")
    (2, 6, None)
    >>> line_of(text, "nodes[1].name")
    5
    """
    places = _places(text)
    while key:
        if key in places:
            return places[key]
        cut = max(key.rfind("."), key.rfind("["))
        key = key[:cut] if cut > 0 else ""
    return None


def _places(text: str) -> dict[str, int]:
    """Return the first line of each table, block and key, by dotted name."""
    places: dict[str, int] = {}
    blocks: dict[str, int] = {}
    table, is_in_text = "", False
    for number, line in enumerate(text.splitlines(), 1):
        was_in_text = is_in_text
        if len(LONG_TEXT.findall(line)) % 2:
            is_in_text = not is_in_text
        if was_in_text:
            continue
        if header := HEADER.fullmatch(line):
            table = _dotted(header[2])
            if header[1] == "[[":
                blocks[table] = blocks.get(table, -1) + 1
                table = f"{table}[{blocks[table]}]"
            places.setdefault(table, number)
        elif assignment := ASSIGNMENT.match(line):
            name = _dotted(assignment[1])
            places.setdefault(f"{table}.{name}" if table else name, number)
    return places


def _dotted(key: str) -> str:
    return ".".join(part.strip("\"'") for part in PART.findall(key))
