"""The reference page of every setting, made from the settings model."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from forebay.settings.example import as_toml
from forebay.settings.model import Settings
from forebay.settings.names import blocks, sections, variable_of

PAGE = Path("docs/reference/settings.md")

OPENING = """\
# Settings

<!-- Made from src/forebay/settings by `make reference`; change the docstrings there, not
this page. -->

[forebay.example.toml](../../forebay.example.toml) has all of them as a file to start from;
[forebay.schema.json](forebay.schema.json) is a JSON schema for editors.

Each setting comes from the first of these that has it: a flag (`--set queue.max_size=50`), an
environment variable (`FOREBAY_QUEUE__MAX_SIZE=50`; `__` nests, lists and tables are JSON or TOML),
the file, the default. The file is `--config`, `FOREBAY_CONFIG`, `./forebay.toml`,
`~/.config/forebay/forebay.toml` or `/etc/forebay/forebay.toml`: the first that is given or exists.
An unknown name is refused, with the nearest known one. Variables that hold secrets may begin with
`FOREBAY_`, too.

Nodes, keys, `[models]`, `[retry]`, `[queue]` and `[usage]` can be reloaded while the gateway runs;
other changes, and those of `queue.priorities`, `priority`, `fairness` and `when_full`, need a
restart.
"""


def page() -> str:
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
