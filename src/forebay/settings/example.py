"""The commented example file and the JSON schema, made from the settings model."""

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic.fields import FieldInfo

from forebay.settings.model import Settings
from forebay.settings.names import blocks, sections

WIDTH = 100

EXAMPLE_OPENING = """\
# Settings of Forebay. What is commented out shows the default: take away the # to change it.
# Check this file with: forebay config check
"""


def as_toml(value: object) -> str:
    """Return a value as TOML writes it.

    >>> as_toml(("a", 1.0, True)), as_toml({"gpt-4.1": "b"}), as_toml(float("inf"))
    ('["a", 1, true]', '{ "gpt-4.1" = "b" }', 'inf')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value) if value.is_integer() else value)
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{as_toml(name)} = {as_toml(inner)}" for name, inner in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(as_toml(inner) for inner in value)}]"
    # A JSON string is a TOML one, but for DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def example_toml(
    values: Mapping[str, object] = {}, nodes: Iterable[Mapping[str, object]] = (), note: str = ""
) -> str:
    """Return the file to start from: every key commented out with its default.

    But for `values` by dotted key, and `nodes`, which are what was found; `note` says so.
    """
    written = [_example_section(name, values, tuple(nodes)) for name in Settings.model_fields]
    return "\n".join([EXAMPLE_OPENING, *([*_commented(note), ""] if note else []), *written])


def _example_section(
    name: str, values: Mapping[str, object], nodes: Sequence[Mapping[str, object]]
) -> str:
    description = Settings.model_fields[name].description or ""
    fields = sections().get(name)
    if name == "nodes" and nodes:
        found = "\n\n".join(_block(name, node) for node in nodes)
        return "\n".join([*_commented(description), found, ""])
    head = f"[{name}]" if fields is not None else f"#[[{name}]]"
    lines = [*_commented(description), head]
    for key, field in (fields or blocks()[name].model_fields).items():
        given = values.get(f"{name}.{key}")
        written = (
            f"#{key} = {as_toml(_shown(field))}" if given is None else f"{key} = {as_toml(given)}"
        )
        lines += [*_commented(field.description or ""), written]
    return "\n".join([*lines, ""])


def _block(name: str, given: Mapping[str, object]) -> str:
    lines = [f"[[{name}]]"]
    for key, field in blocks()[name].model_fields.items():
        default = f"#{key} = {as_toml(_shown(field))}"
        lines.append(f"{key} = {as_toml(given[key])}" if key in given else default)
    return "\n".join(lines)


def _shown(field: FieldInfo) -> Any:
    """Return the example where a field has one, else its default."""
    return field.examples[0] if field.examples else field.get_default(call_default_factory=True)


def _commented(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), WIDTH, initial_indent="# ", subsequent_indent="# ")


def json_schema() -> str:
    """Return the JSON schema of the file, for editors."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Settings.model_json_schema(),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
