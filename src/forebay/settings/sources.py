"""Where settings come from: flags, the environment, a file. Each becomes a list of assignments.

An assignment sets one key of one section, or one entry of a key that maps names to values, or a
whole list of blocks. So a later source changes the keys that it names and leaves the others alone.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from forebay.settings.errors import Problem
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
from forebay.settings.values import parse_key, parse_value

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


Found = Iterable[Assignment | Problem]
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
            yield Problem(
                key.strip() or text, wrong, "write one such as queue.max_size=50", "--set"
            )
        else:
            yield from _assign(path, parse_value(raw, _takes_text(path)), origin)


def from_environment(environ: Mapping[str, str]) -> Found:
    """Yield what `FOREBAY_*` sets; `__` nests, and the more exact of two names counts."""
    named = [
        (tuple(name[len(PREFIX) :].lower().split("__")), name)
        for name in environ
        if name.upper().startswith(PREFIX) and not _of_kubernetes(name, environ[name])
    ]
    for path, name in sorted(named, key=lambda pair: (len(pair[0]), pair[1])):
        value = parse_value(environ[name], _takes_text(path))
        yield from _assign(path, value, Origin("env", name))


def _of_kubernetes(name: str, value: str) -> bool:
    if KUBERNETES.fullmatch(name):
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
        yield Problem(section, "is a section, not a value", instead, str(origin))


def _whole_list(path: tuple[str, ...], value: object, origin: Origin) -> Assignment | Problem:
    if len(path) == 1:
        return Assignment(path, value, origin)
    instead = f'set all of it: {path[0]}=[{{name = "...", ...}}], or use the file'
    return Problem(".".join(path), f"{path[0]} is a list of blocks", instead, str(origin))


def _one_key(path: tuple[str, ...], value: object, origin: Origin) -> Assignment | Problem:
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


def _unknown_key(key: str, origin: Origin) -> Problem:
    known = nearest(key, valid_keys())
    written = f"{known} ({variable_of(known)})" if origin.kind == "env" else known
    return Problem(key, "is not a setting", f"did you mean {written}?", str(origin))
