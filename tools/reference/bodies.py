"""JSON schemas in words: what a body is made of, for the reference page of the routes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from forebay.gateway.errors.codes import CODES

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORDS: Final = {
    "string": "text", "integer": "whole number", "number": "number", "boolean": "true or false",
    "object": "object", "null": "null", "array": "list",
}  # fmt: skip
_BOUNDS: Final = {
    "minimum": "from {}", "exclusiveMinimum": "above {}", "maximum": "to {}",
    "maxLength": "at most {} characters", "maxProperties": "at most {} members",
}  # fmt: skip
_HUGE: Final = 2**53
"""Bounds beyond this are those of the machine, not of the route."""
_ENOUGH: Final = 8
"""More choices than this are not listed."""


def bodies(schemas: dict[str, Any]) -> Iterator[str]:
    """Yield the part of the page that says what each body holds."""
    yield from ("## Bodies", "", "Members in **bold** are always there, or needed.")
    for name, schema in schemas.items():
        yield from ("", f"### {name}")
        if schema.get("description"):
            yield from ("", schema["description"])
        rows = list(_rows(schema))
        if rows:
            yield from ("", "| Member | Kind | Meaning |", "| --- | --- | --- |", *rows)
        else:
            yield from ("", f"{kind_of(schema).capitalize()}.")


def _rows(schema: dict[str, Any], before: str = "") -> Iterator[str]:
    """Yield a row for each member, those of members included."""
    for choice in schema.get("anyOf", ()):
        yield from _rows(choice, before)
    needed = schema.get("required", ())
    for name, member in schema.get("properties", {}).items():
        shown = f"`{before}{name}`"
        meaning = " ".join(member.get("description", "").split()).replace("|", "\\|")
        yield f"| {f'**{shown}**' if name in needed else shown} | {kind_of(member)} | {meaning} |"
        yield from _rows(member, f"{before}{name}.")
        yield from _rows(member.get("items", {}), f"{before}{name}[].")


def kind_of(schema: dict[str, Any]) -> str:
    """Say in words what a value is.

    >>> kind_of({"type": ["integer", "null"], "minimum": 1})
    'whole number or null, from 1'
    """
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind_of(choice) for choice in schema["anyOf"]))
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return _choices(schema["enum"])
    return ", ".join([_type_of(schema), *_bounds_of(schema)])


def _choices(values: list[Any]) -> str:
    if len(values) > _ENOUGH and CODES.keys() >= set(values):
        return "an [error code](errors.md)"
    return ", ".join(f"`{json.dumps(value)}`" for value in values)


def _type_of(schema: dict[str, Any]) -> str:
    types = schema.get("type", "anything")
    words = [_WORDS.get(one, one) for one in ([types] if isinstance(types, str) else types)]
    if types == "array" and "items" in schema:
        return f"list of {kind_of(schema['items'])}"
    if types == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {kind_of(schema['additionalProperties'])}"
    return " or ".join(words)


def _bounds_of(schema: dict[str, Any]) -> Iterator[str]:
    for name, words in _BOUNDS.items():
        bound = schema.get(name)
        if bound is not None and abs(bound) < _HUGE and (name, bound) != ("minimum", 0):
            yield words.format(f"{bound:,}")
