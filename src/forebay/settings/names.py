"""Every valid name of a setting, read off the model, and the nearest one to a misspelt name."""

from collections.abc import Collection, Mapping
from difflib import SequenceMatcher
from functools import cache
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from forebay.settings.model import Settings
from forebay.settings.section import Section

PREFIX = "FOREBAY_"


@cache
def sections() -> Mapping[str, Mapping[str, FieldInfo]]:
    """Return the fields of each section by name; lists of blocks are not among them."""
    return {
        name: field.annotation.model_fields
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    }


@cache
def blocks() -> Mapping[str, type[Section]]:
    """Return what each list of blocks (`[[nodes]]`, `[[keys]]`) is a list of."""
    return {
        name: get_args(field.annotation)[0]
        for name, field in Settings.model_fields.items()
        if name not in sections()
    }


@cache
def valid_keys() -> tuple[str, ...]:
    """Return every dotted name that can be set: the keys of the sections, and lists of blocks."""
    dotted = [f"{section}.{field}" for section, fields in sections().items() for field in fields]
    return (*dotted, *blocks())


def is_text(field: FieldInfo) -> bool:
    """Return whether a value of this field is text, so that `1.2` given for it is not a number."""
    return _is_text(field.annotation)


def has_text_entries(field: FieldInfo) -> bool:
    """Return whether this field maps names to text."""
    return is_mapping(field) and _is_text(get_args(field.annotation)[1])


def is_mapping(field: FieldInfo) -> bool:
    """Return whether this field maps free names to values."""
    origin = get_origin(field.annotation)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _is_text(annotation: object) -> bool:
    metadata = getattr(annotation, "__metadata__", None)
    kind = get_args(annotation)[0] if metadata else annotation
    return kind is str or get_origin(kind) is Literal


def variable_of(key: str) -> str:
    """Return the environment variable of a dotted key.

    >>> variable_of("queue.max_size")
    'FOREBAY_QUEUE__MAX_SIZE'
    """
    return PREFIX + key.replace(".", "__").upper()


def nearest(name: str, candidates: Collection[str]) -> str:
    """Return the candidate most like `name`, as a whole and in its last part.

    >>> nearest("queu.maxsize", valid_keys()), nearest("port", valid_keys())
    ('queue.max_size', 'server.port')
    """

    def likeness(candidate: str) -> float:
        return _ratio(name, candidate) + _ratio(_last(name), _last(candidate))

    return max(candidates, key=likeness)


def _last(dotted: str) -> str:
    return dotted.rpartition(".")[2]


def _ratio(one: str, other: str) -> float:
    return SequenceMatcher(None, one.lower(), other.lower(), autojunk=False).ratio()
