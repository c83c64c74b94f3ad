"""What the fields of requests and answers have in common.

Readers are tolerant: a client of this version also reads the answers of an older gateway, which
lacks some fields, and of a newer one, which has more fields and more values. So the fields of
answers have defaults, and bounds and choices are documented but not checked. What a gateway checks
of a request is given as `msgspec.Meta`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct

T = TypeVar("T")


class ResponseBody(Struct, frozen=True):
    """An answer, or a part of one: its document requires every field that is not `Sometimes`."""


class RequestBody(Struct, omit_defaults=True):
    """A request, or a part of one: its document requires the fields without a default."""


def unchecked(**schema: Any) -> Meta:
    """Return members of a JSON schema that are documented, and not checked by readers."""
    return Meta(extra_json_schema=schema)


def one_of(*choices: object) -> Meta:
    """Return the documented choices of a field."""
    return unchecked(enum=list(choices))


ALWAYS: Final = Meta(extra={"null": False})
SOMETIMES: Final = Meta(extra={"null": False, "required": False})

Always: TypeAlias = Annotated[T | None, ALWAYS]
"""In every answer; None only for the reader of an answer that lacks it."""
Sometimes: TypeAlias = Annotated[T | None, SOMETIMES]
"""Left out of an answer where it does not apply (`OMITTED`); its reader then finds None."""
OMITTED: Final[Any] = UNSET

Count: TypeAlias = Annotated[int, unchecked(minimum=0)]
Seconds: TypeAlias = Annotated[float, unchecked(minimum=0)]
Share: TypeAlias = Annotated[float, unchecked(minimum=0, maximum=1)]
