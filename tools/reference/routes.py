"""The reference page of every route, made from the description that `/openapi.json` serves."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from forebay.gateway.openapi.document import document
from tools.reference.bodies import bodies, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = Path("docs/reference/http.md")

OPENING: Final = """\
# HTTP

<!-- Made from what /openapi.json serves by `make reference`; change the words in
src/forebay/gateway/openapi/, not this page. -->

The same for programs: `GET /openapi.json` of any gateway; `make reference` writes it into `build/`.

{description}

Headers that many routes share are explained under [headers](headers.md), codes under
[errors](errors.md). Every route may answer, beside what it lists: {everywhere}.
"""

_CODE: Final = re.compile(r"`([a-z_]+)`: ")
_PLACES: Final = {"path": "in the path", "query": "in the query"}


def page() -> str:
    """Return what the generated page should hold."""
    described = cast("dict[str, Any]", document())
    everywhere = ", ".join(map(_linked, sorted(_everywhere())))
    description = described["info"]["description"]
    lines = [OPENING.format(description=description, everywhere=everywhere)]
    for tag in described["tags"]:
        operations = list(_operations(described, tag["name"]))
        lines += [f"## {tag['name'].capitalize()}", "", tag["description"], ""]
        lines += ["| Route | Does |", "| --- | --- |"]
        lines += [
            f"| [`{name}`](#{_anchor(name)}) | {operation['summary']} |"
            for name, operation in operations
        ]
        for name, operation in operations:
            lines += ["", *_section(name, operation, described["components"])]
        lines.append("")
    return "\n".join([*lines, *bodies(described["components"]["schemas"])]) + "\n"


def _operations(described: dict[str, Any], tag: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            if tag in operation["tags"]:
                yield f"{method.upper()} {path}", operation


def _anchor(name: str) -> str:
    """Return what a heading is called in links, as GitHub and MkDocs make them."""
    return re.sub(r"[^\w\- ]", "", name).lower().replace(" ", "-")


def _section(name: str, operation: dict[str, Any], components: dict[str, Any]) -> Iterator[str]:
    yield from (f"### `{name}`", "", f"{operation['summary']}.")
    if operation.get("description"):
        yield from ("", operation["description"])
    parameters = [_found(parameter, components) for parameter in operation["parameters"]]
    yield from _parameters(parameters)
    if body := operation.get("requestBody"):
        need = "" if body["required"] else ", which may be left out"
        yield from ("", f"**Body**{need}: {_content(body['content'])}.")
    good, bad = _answers(operation, components)
    for status, answer in good.items():
        yield from ("", f"**{status}**: {_meaning(answer, operation['summary'])}.")
    everywhere = _everywhere()
    errors = [_codes(status, answer, everywhere) for status, answer in bad.items()]
    if told := " · ".join(error for error in errors if error):
        yield from ("", f"**Errors**: {told}.")


Answers: TypeAlias = dict[str, dict[str, Any]]


def _answers(operation: dict[str, Any], components: dict[str, Any]) -> tuple[Answers, Answers]:
    """Return the good answers of a route and the bad ones, by status."""
    found = {
        status: _found(answer, components) for status, answer in operation["responses"].items()
    }
    good = {status: found[status] for status in sorted(found) if status < "400"}
    return good, {status: found[status] for status in sorted(found) if status >= "400"}


@cache
def _everywhere() -> frozenset[str]:
    """Return the codes that every route has."""
    described = cast("dict[str, Any]", document())
    each = [
        {
            code
            for answer in _answers(operation, described["components"])[1].values()
            for code in _CODE.findall(answer["description"])
        }
        for methods in described["paths"].values()
        for operation in methods.values()
    ]
    return frozenset.intersection(*map(frozenset, each))


def _parameters(parameters: list[dict[str, Any]]) -> Iterator[str]:
    """Tell those of the path and of the query; headers are on a page of their own."""
    own = [parameter for parameter in parameters if parameter["in"] in _PLACES]
    headers = [parameter["name"] for parameter in parameters if parameter["in"] == "header"]
    headers = [name for name in headers if name != "Accept-Language"]  # every route reads it
    if own:
        yield from ("", "| Parameter | Where | Kind | Meaning |", "| --- | --- | --- | --- |")
    for parameter in own:
        where = _PLACES[parameter["in"]] + (", needed" if parameter.get("required") else "")
        meaning = _cell(parameter.get("description", ""))
        yield f"| `{parameter['name']}` | {where} | {kind_of(parameter['schema'])} | {meaning} |"
    if headers:
        yield from ("", f"Headers read: {', '.join(f'`{name}`' for name in headers)}.")


def _found(given: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference, if it is one."""
    if "$ref" not in given:
        return given
    _, _, section, name = given["$ref"].split("/")
    found: dict[str, Any] = components[section][name]
    return found


def _codes(status: str, answer: dict[str, Any], everywhere: frozenset[str]) -> str:
    """Return what a bad answer is called, as far as not every route has it."""
    codes = _CODE.findall(answer["description"])
    told = [_linked(code) for code in codes if code not in everywhere]
    if not codes:
        told.append("what the node says, passed through")
    return f"{status} {', '.join(told)}" if told else ""


def _linked(code: str) -> str:
    return f"[`{code}`](errors.md#{code})"


def _meaning(answer: dict[str, Any], summary: str) -> str:
    """Say what comes; words that only repeat those of the route are left out."""
    words = _cell(answer["description"]).rstrip(".")
    content = _content(answer.get("content", {}))
    told = [words if words != summary else "", content]
    return ": ".join(part for part in told if part) or "nothing in the body"


def _content(content: dict[str, Any]) -> str:
    """Say what a body is; its media type where that is not JSON."""
    kinds: dict[str, list[str]] = {}
    for media, body in content.items():
        kinds.setdefault(kind_of(body["schema"]), []).append(media)
    return " or ".join(_shown(kind, medias) for kind, medias in kinds.items())


def _shown(kind: str, medias: list[str]) -> str:
    if medias == ["application/json"]:
        return "JSON" if kind == "anything" else kind
    types = " or ".join(f"`{media}`" for media in medias)
    return types if kind == "anything" else f"{kind} as {types}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
