"""The pages that are made of the model: the reference, the commented example, the JSON schema.

`python -m forebay.settings.reference` writes them into the repository it is run in.
"""

import json
import sys
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from forebay.settings.model import Settings
from forebay.settings.names import blocks, sections, variable_of

REFERENCE = Path("docs/reference/settings.md")
EXAMPLE = Path("forebay.example.toml")
SCHEMA = Path("docs/reference/forebay.schema.json")
WIDTH = 100

OPENING = """\
# Settings

<!-- Made from the model by python -m forebay.settings.reference; change the docstrings there, not
this page. -->

[forebay.example.toml](../../forebay.example.toml) is the same as a file to start from, and
[forebay.schema.json](forebay.schema.json) tells an editor.

Each setting comes from the first of these that has it: a flag (`--set queue.max_size=50`), an
environment variable (`FOREBAY_QUEUE__MAX_SIZE=50`; `__` nests, lists and tables are JSON or TOML),
the file (`--config`, else `forebay.toml` in the current directory), the default. A name that does
not exist is refused, with the nearest one that does. A variable that a setting names for a secret
may begin with `FOREBAY_` too.

Nodes, keys, `[models]`, `[retry]` and `[queue]` can change while the gateway runs; other changes,
and those of `queue.priorities`, `priority`, `fairness` and `when_full`, need a restart.
"""

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


def example_toml() -> str:
    """Return the file to start from: every key commented out with its default."""
    return "\n".join([EXAMPLE_OPENING, *(_example_section(name) for name in Settings.model_fields)])


def _example_section(name: str) -> str:
    description = Settings.model_fields[name].description or ""
    fields = sections().get(name)
    head = f"[{name}]" if fields is not None else f"#[[{name}]]"
    lines = [*_commented(description), head]
    for key, field in (fields or blocks()[name].model_fields).items():
        lines += [*_commented(field.description or ""), f"#{key} = {as_toml(_shown(field))}"]
    return "\n".join([*lines, ""])


def _shown(field: FieldInfo) -> Any:
    """Return the example where a field has one, else its default."""
    return field.examples[0] if field.examples else field.get_default(call_default_factory=True)


def _commented(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), WIDTH, initial_indent="# ", subsequent_indent="# ")


def reference_markdown() -> str:
    """Return the reference page."""
    return "\n".join([OPENING, *(_page_section(name) for name in Settings.model_fields)])


def _page_section(name: str) -> str:
    description = " ".join((Settings.model_fields[name].description or "").split())
    fields = sections().get(name)
    if fields is not None:
        return "\n".join([f"## [{name}]", "", description, "", *_page_fields(name, fields)])
    prefix = f"The whole list as a variable: `{variable_of(name)}`."
    fields = blocks()[name].model_fields
    return "\n".join([f"## [[{name}]]", "", description, prefix, "", *_page_fields(name, fields)])


def _page_fields(section: str, fields: Mapping[str, FieldInfo]) -> Iterable[str]:
    for key, field in fields.items():
        default = field.get_default(call_default_factory=True)
        value = "required" if default is PydanticUndefined else f"default `{as_toml(default)}`"
        yield f"### `{section}.{key}`"
        yield ""
        yield f"{_kind(field.annotation)}, {value}. {' '.join((field.description or '').split())}"
        yield ""


def _kind(annotation: object) -> str:
    """Return the kind of value in a word or two."""
    origin = get_origin(annotation)
    if origin is Literal:
        return "One of " + ", ".join(f"`{as_toml(word)}`" for word in get_args(annotation))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "Table"
    if origin is tuple:
        return "List"
    words = {bool: "True or false", int: "Whole number", float: "Number", str: "Text"}
    return words[annotation] if isinstance(annotation, type) else "Value"


def json_schema() -> str:
    """Return the JSON schema of the file, for editors."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Settings.model_json_schema(),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def pages() -> Mapping[Path, str]:
    """Return what each generated file should hold."""
    return {REFERENCE: reference_markdown(), EXAMPLE: example_toml(), SCHEMA: json_schema()}


def write_pages(root: Path) -> None:
    """Write the generated files below `root`."""
    for path, text in pages().items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
