"""What pydantic found, told in the words of an operator: which key, what is wrong, what to write.

Values are shown only where they cannot be secret: numbers, and words out of a short list.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from math import isnan
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from forebay.settings.errors import REFUSED, Problem
from forebay.settings.names import blocks, nearest

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


def problems_of(error: ValidationError) -> Iterable[Problem]:
    """Yield the problems behind a validation error, each with its dotted key."""
    for details in error.errors(include_url=False):
        key = dotted(details["loc"])
        if details["type"] == REFUSED:
            for problem in details["ctx"]["problems"]:
                joint = "." if key and problem.key else ""
                yield problem._replace(key=f"{key}{joint}{problem.key}")
        elif details["type"] == "extra_forbidden":
            yield _unknown(details["loc"])
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


def _unknown(place: tuple[int | str, ...]) -> Problem:
    """Suggest a name for one that a block does not know; sections were checked before."""
    *block, name = place
    known = blocks()[str(block[0]) if block else "nodes"].model_fields  # else a node by itself
    suggestion = dotted((*block, nearest(str(name), known)))
    return Problem(dotted(place), "is not a setting", f"did you mean {suggestion}?")


def _in_words(key: str, details: ErrorDetails) -> Problem:
    kind, given = details["type"], details["input"]
    context: dict[str, Any] = details.get("ctx", {})
    if kind == "tuple_type" and key in blocks():
        return Problem(key, "is not a list of blocks", f"write [[{key}]], with two brackets")
    if kind == "string_type" and isinstance(given, Mapping):
        return Problem(key, *DOTS)
    if isinstance(given, float) and isnan(given):
        return Problem(key, "is not a number", "write one")
    if kind not in WORDS:
        return Problem(key, details["msg"], "correct it")
    wrong, instead = WORDS[kind]
    if kind == "literal_error" and (near := _nearest_word(given, context)):
        instead = f'did you mean "{near}"?'
    shown = {name: _plain(value) for name, value in context.items()}
    return Problem(key, wrong.format(**shown) + _got(given, kind), instead.format(**shown))


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
