"""The schemas of `/openapi.json`, made from the Structs that the gateway decodes and encodes."""

from __future__ import annotations

import ast
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from forebay.api.fields import RequestBody, ResponseBody
from forebay.gateway.errors.codes import CODES
from forebay.relay.anthropic import TYPES as ANTHROPIC_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Schema: TypeAlias = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
NODE_ANSWER: Final[Schema] = {
    "description": "What the node says, byte for byte; the header `X-Forebay-Node` names it."
}
"""A node's answers are its own affair."""

_REFERENCE: Final = "#/components/schemas/{name}"
_CHOICES: Final = {
    "error code": sorted(CODES),
    "error type": [*ANTHROPIC_TYPES.values(), "invalid_request_error", "api_error"],
}
"""The choices of fields that `forebay.api` cannot know, by format."""


def reference(body: Any) -> Schema:
    """Return the schema of a body: a reference to its Struct; of a tuple, to any of them."""
    if isinstance(body, tuple):
        return {"anyOf": [reference(one) for one in body]}
    if isinstance(body, type):
        return {"$ref": _REFERENCE.format(name=body.__name__)}
    (schema,), _ = msgspec.json.schema_components([body], ref_template=_REFERENCE)
    return schema


def component_schemas(bodies: Iterable[Any]) -> dict[str, Schema]:
    """Return the schemas of these bodies and of everything in them, by name."""
    each = [one for body in bodies for one in (body if isinstance(body, tuple) else (body,))]
    _, found = msgspec.json.schema_components(each, ref_template=_REFERENCE)
    structs = [one for one in _subclasses(ResponseBody, RequestBody) if one.__name__ in found]
    for schema in found.values():
        del schema["title"]
        schema.pop("description", None)
    for struct in msgspec.inspect.multi_type_info(structs):
        assert isinstance(struct, msgspec.inspect.StructType)
        _complete(found[struct.cls.__name__], struct)
    return dict(sorted(found.items()))


def _subclasses(*structs: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """Yield what `forebay.api` has of these; the SDK has some of its own."""
    for struct in structs:
        if struct.__module__.startswith("forebay.api."):
            yield struct
            yield from _subclasses(*struct.__subclasses__())


def _complete(schema: Schema, struct: msgspec.inspect.StructType) -> None:
    """Add to the schema of a Struct what its fields mean, and which of them are always there."""
    described, needed = _descriptions(struct.cls), []
    for field in struct.fields:
        member = schema["properties"][field.encode_name]
        member.pop("default", None)
        marks = getattr(field.type, "extra", None) or {}
        if marks.get("null") is False:
            _drop_null(member)
        if member.get("format") in _CHOICES:
            member["enum"] = _CHOICES[member.pop("format")]
        if field.name in described:
            member["description"] = described[field.name]
        if marks.get("required", field.required or issubclass(struct.cls, ResponseBody)):
            needed.append(field.encode_name)
    schema["required"] = needed


def _drop_null(member: Schema) -> None:
    choices = [one for one in member.pop("anyOf") if one != {"type": "null"}]
    member.update(choices[0] if len(choices) == 1 else {"anyOf": choices})


def _descriptions(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docstrings below the fields of a Struct and of its bases, by field."""
    found: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        found |= _docstrings(base.__module__).get(base.__name__, {})
    return found


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of fields in a module of `forebay.api`, by class and field."""
    loader = getattr(sys.modules[module], "__loader__", None)
    if not module.startswith("forebay.api.") or loader is None:
        return {}
    classes = ast.parse(loader.get_source(module) or "").body
    return {one.name: dict(_of_fields(one)) for one in classes if isinstance(one, ast.ClassDef)}


def _of_fields(struct: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in zip(struct.body, struct.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ):
                yield name, " ".join(text.split())
            case _:
                pass
