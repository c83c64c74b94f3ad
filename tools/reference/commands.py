"""The reference page of the command line, made from the commands themselves.

It uses what Typer
keeps about a command (names, help, defaults, bounds), not how this version of it prints them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer.main

from forebay.cli.exits import MEANINGS
from forebay.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = Path("docs/reference/command-line.md")

OPENING: Final = """\
# Commands

<!-- Made from src/forebay/cli by `make reference`; change the help there, not this page. -->

How the commands are used: [the command line](../command-line.md). `--help` after any of them prints
the same.

| Exit status | Means |
| --- | --- |
"""

_MARKUP: Final = re.compile(
    r"\[/?(?:bold|dim|italic|underline|red|green|yellow|blue|magenta|cyan|white|link)[^\]]*\]|\[/\]"
)
_KINDS: Final[dict[Any, str]] = {int: "N", float: "N", Path: "FILE"}
_UNLISTED: Final = {"--help", "--install-completion", "--show-completion"}


def page(command: Any = None) -> str:
    """Return what the generated page should hold, of this program or of another."""
    top = command or typer.main.get_command(app)
    statuses = "".join(f"| {status} | {words} |\n" for status, words in MEANINGS.items())
    lines = [OPENING + statuses, "| Command | Does |", "| --- | --- |"]
    sections: list[str] = []
    for words, found in commands(top, (top.name or "forebay",)):
        name = " ".join(words)
        anchor = name.replace(" ", "-")
        lines.append(f"| [`{name}`](#{anchor}) | {_first_sentence(found.help)} |")
        sections += ["", f"## {name}", "", *_section(name, found)]
    return "\n".join([*lines, *sections]) + "\n"


def commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command below one, itself first, with the words that call it."""
    if getattr(command, "hidden", False):
        return
    yield words, command
    for name, verb in getattr(command, "commands", {}).items():
        yield from commands(verb, (*words, name))


def _section(name: str, command: Any) -> Iterator[str]:
    shown = [parameter for parameter in command.params if _is_listed(parameter)]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    options = [one for one in shown if one.param_type_name != "argument"]
    is_group = hasattr(command, "commands")
    usage = [name, *map(_placeholder, arguments), "[OPTIONS]" if options else ""]
    usage += ["COMMAND"] if is_group else []
    yield from ("```text", " ".join(word for word in usage if word), "```", "")
    yield _paragraphs(command.help)
    if is_group:
        verbs = [verb for verb, found in command.commands.items() if not found.hidden]
        linked = [f"[`{verb}`](#{name.replace(' ', '-')}-{verb})" for verb in verbs]
        yield from ("", f"Commands: {', '.join(linked)}.")
    if arguments:
        yield from ("", "| Argument | Meaning |", "| --- | --- |")
        yield from (f"| `{_placeholder(one)}` | {_cell(one.help)} |" for one in arguments)
    if options:
        yield from ("", "| Option | Default | Meaning |", "| --- | --- | --- |")
        yield from (f"| {_names(one)} | {_default(one)} | {_meaning(one)} |" for one in options)
    if epilog := getattr(command, "epilog", None):
        yield from ("", _paragraphs(epilog))


def _is_listed(parameter: Any) -> bool:
    return not getattr(parameter, "hidden", False) and not _UNLISTED & set(parameter.opts)


def _placeholder(argument: Any) -> str:
    shown: str = argument.metavar or argument.name.upper()
    return shown if argument.required else f"[{shown}]"


def _names(option: Any) -> str:
    """Return how an option is written, with what it takes."""
    names = [f"`{name}`" for name in (*option.opts, *option.secondary_opts)]
    if not getattr(option, "is_flag", False):
        names[0] = f"`{option.opts[0]} {option.metavar or _kind(option)}`"
    return ", ".join(names)


def _kind(option: Any) -> str:
    """Return what to write in the place of a value that has no name of its own."""
    described = getattr(option, "type_descriptor", None)
    kind = getattr(described, "annotation", None) or type(option.default)
    return _KINDS.get(kind, "TEXT")


def _default(option: Any) -> str:
    value = option.default
    if option.required:
        return "needed"
    if value is None or value is False or value in ("", ()) or callable(value):
        return ""
    return "yes" if value is True else f"`{value:g}`" if type(value) is float else f"`{value}`"


def _meaning(option: Any) -> str:
    low, high = getattr(option, "min", None), getattr(option, "max", None)
    bounds = [
        f"from {low:g}" if low is not None else "",
        f"to {high:g}" if high is not None else "",
    ]
    told = " ".join(bound for bound in bounds if bound)
    help_text = _cell(option.help)
    says_so = "repeat" in help_text.lower() or not getattr(option, "multiple", False)
    repeated = "" if says_so else "Repeatable."
    parts = [help_text, f"{told.capitalize()}." if told else "", repeated]
    return " ".join(part for part in parts if part)


def _plain(text: str | None) -> str:
    """Return help without Rich's markup and without what Click cuts off."""
    return _MARKUP.sub("", (text or "").split("\f")[0]).replace("\b", "")


def _paragraphs(text: str | None) -> str:
    parts = re.split(r"\n\s*\n", _plain(text).strip())
    return "\n\n".join(" ".join(part.split()).replace("<", "&lt;") for part in parts)


def _first_sentence(text: str | None) -> str:
    return _cell((text or "").strip().split("\n\n")[0])


def _cell(text: str | None) -> str:
    words = " ".join(_plain(text).split())
    return words.replace("|", "\\|").replace("<", "&lt;")
