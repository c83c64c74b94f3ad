"""The verbs of `forebay`: each is imported when it is called, and all of them fail alike.

A list of verbs (`--help`, the Tab key) needs only their names and a line about each, so nothing of
the gateway is imported for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
import typer.core
import typer.main
from typer._completion_classes import completion_init

from forebay.cli.exits import FAILED, INTERRUPTED, PIPE_CLOSED, USAGE
from forebay.cli.output.console import complain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

UsageError: Any = typer.BadParameter.__mro__[1]
"""Typer does not export it, and keeps it in another place since it has its own copy of click."""


NO_NUMBER = (
    "Input should be a valid integer, unable to parse string as an integer",
    "it is not a whole number",
)
"""What Typer's newer versions say, and what people say."""


class Verb(NamedTuple):
    """Where a verb is, and what it does."""

    place: str
    """The module and the name in it: a function, or a Typer with verbs of its own."""
    help: str
    """The first sentence of its own help."""


class LazyCommands(MutableMapping[str, Any]):
    """Commands by name; those of the table are imported when they are looked up."""

    def __init__(self, table: Mapping[str, Verb], made: Mapping[str, Any]) -> None:
        self._table = table
        self._made = dict(made)

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _load(name, self._table[name])
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._table
        yield from (name for name in self._made if name not in self._table)

    def __len__(self) -> int:
        return len({*self._table, *self._made})

    def __contains__(self, name: object) -> bool:
        return name in self._table or name in self._made

    def placeholder(self, name: str) -> Any:
        """Return a command with only a name and a help line; nothing is imported for it."""
        if name in self._made or name not in self._table:
            return self._made.get(name)
        verb = self._table[name]
        return typer.core.TyperCommand(name, help=verb.help)


SYNONYMS: Mapping[str, Sequence[str]] = {
    word: verbs.split()
    for words, verbs in {
        "ls all": "list show",
        "get info describe view print cat status show": "show list",
        "create make generate write new": "new add submit init",
        "add register insert": "add new submit",
        "rm del drop delete remove": "remove revoke delete cancel",
        "kill stop abort close end": "cancel drain delete",
        "validate verify lint": "check",
        "follow tail": "watch",
        "start enable undrain uncordon": "resume",
        "pause disable cordon": "drain",
        "rerun again": "retry",
    }.items()
    for word in words.split()
}
"""Words that people try in a group of verbs, and what they may mean: the first that is there."""


class SynonymGroup(typer.core.TyperGroup):
    """A group that knows what people mean by a verb that it does not have."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of the first word; what it may mean is said where it is none."""
        if args and args[0] not in self.commands:
            verb = self.verb_meant(args[0].lower())
            if verb:
                ctx.fail(f"No such command {args[0]!r}. Did you mean {verb!r}?")
        return super().resolve_command(ctx, args)

    def verb_meant(self, word: str) -> str | None:
        """Return the verb of this group that is meant by a word that is none."""
        return next((verb for verb in SYNONYMS.get(word, ()) if verb in self.commands), None)


class VerbGroup(SynonymGroup):
    """A group whose `table` names verbs, and which ends every command in the same manner."""

    table: Mapping[str, Verb] = {}
    meant: Mapping[str, str] = {}
    """Words that people try, and the verb or the option that they mean."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._lazy = LazyCommands(self.table, self.commands)
        self.commands = self._lazy
        self._is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or what a list shows of it."""
        return self._lazy.placeholder(cmd_name) if self._is_listing else self._lazy.get(cmd_name)

    def verb_meant(self, word: str) -> str | None:
        """Return what the table of words says."""
        return self.meant.get(word)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if not _is_terminal():
            self.rich_markup_mode = None  # no boxes in a pipe
        self._is_listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_listing = False

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Offer the verbs; as for the help, nothing is imported for it."""
        self._is_listing = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._is_listing = False

    def make_context(self, *given: Any, **more: Any) -> Any:
        """Parse; `--help` and `--version` print while that is done."""
        with _quiet_if_pipe_closes():
            return super().make_context(*given, **more)

    def invoke(self, ctx: Any) -> Any:
        with _quiet_if_pipe_closes():
            return super().invoke(ctx)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line and exit, with a status that `exits.py` explains."""
        args = list(sys.argv[1:] if args is None else args)
        if args[:1] == ["help"] and "help" not in self.commands:
            args = [*args[1:], "--help"]  # as git and others have it
        completion_init()
        try:
            status = super().main(args, prog_name, complete_var, False, **extra)
        except typer.Abort:  # older versions of Typer turn Ctrl-C into it
            status = INTERRUPTED
        except UsageError as wrong:
            status = _tell_usage(wrong)
        if standalone_mode:
            sys.exit(status if isinstance(status, int) else 0)
        return status


class DefaultVerbGroup(SynonymGroup):
    """A group of which one verb need not be written."""

    default = "list"
    takes_file = False
    """Whether the first argument of the default one is a file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default verb in its place."""
        first = args[0] if args else "-"
        is_option = first.startswith("-") and first not in ctx.help_option_names
        is_file = self.takes_file and not first.startswith("-") and self._is_file(first)
        if is_file or (is_option and (args or not self.no_args_is_help)):
            args = [self.default, *args]
        return list(super().parse_args(ctx, args))

    def _is_file(self, word: str) -> bool:
        """Tell a file from a verb; what is not there and is nearly a verb is a misspelt one."""
        if word in self.commands:
            return False
        near = self.verb_meant(word) or get_close_matches(word, self.commands)
        may_be_misspelt = word.isalpha() and near
        return not may_be_misspelt or os.path.lexists(word)


def _load(name: str, verb: Verb) -> Any:
    module_name, _, attribute = verb.place.partition(":")
    module = import_module(module_name)
    found = getattr(module, attribute)
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(name, epilog=getattr(module, "EPILOG", None))(found)
        command = typer.main.get_command(alone)
    command.name = name
    _name_values(command)
    if not _is_terminal():
        _without_boxes(command)
    return command


def _name_values(command: Any) -> None:
    """Have the help call values by words, not by their types in Python."""
    for parameter in command.params:
        is_option = hasattr(parameter, "is_flag")
        if not is_option:
            parameter.metavar = parameter.metavar or parameter.name.upper()
            parameter.display_type_rich = _no_type
        elif parameter.metavar is None and not parameter.is_flag:
            parameter.metavar = _word_for(parameter)
    for verb in getattr(command, "commands", {}).values():
        _name_values(verb)


def _no_type(ctx: Any) -> None:
    """An argument has a name already."""


def _word_for(option: Any) -> str | None:
    # Older versions of Typer have words of their own, and no such attribute.
    kind = option.bare_type() if hasattr(option, "bare_type") else ""
    if kind in ("int", "float"):
        return "N"
    if "str" not in kind:
        return None
    last = max(option.opts, key=len).rpartition("-")[2].upper()
    return "VAR" if last == "ENV" else last


def _without_boxes(command: Any) -> None:
    command.rich_markup_mode = None
    for verb in getattr(command, "commands", {}).values():
        _without_boxes(verb)


def _is_terminal() -> bool:
    return sys.stdout.isatty()


@contextmanager
def _quiet_if_pipe_closes() -> Iterator[None]:
    """Exit without a word where the reader of the output closes the pipe."""
    try:
        yield
    except BrokenPipeError:
        with suppress(OSError, ValueError):  # nobody reads what is still in the buffer
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(PIPE_CLOSED) from None


def _tell_usage(wrong: Any) -> int:
    """Say what is wrong with a command line, and where help is."""
    context = wrong.ctx
    if type(wrong).__name__ == "NoArgsIsHelpError":
        typer.echo(context.get_help(), err=True)
        return USAGE
    path = context.command_path if context is not None else "forebay"
    complain(f"{_sentence(wrong)} Help: {path} --help")
    return int(getattr(wrong, "exit_code", FAILED))


def _sentence(wrong: Any) -> str:
    if type(wrong).__name__ == "NoSuchOption":
        near = getattr(wrong, "possibilities", None) or ()
        words = f"no such option: {wrong.option_name}."
        return f"{words} Did you mean {' or '.join(sorted(near)[:3])}?" if near else words
    text = " ".join(wrong.format_message().split())
    text = (text[:1].lower() + text[1:]).replace(*NO_NUMBER).replace("Value error, ", "")
    return text if text.endswith((".", "?")) else f"{text}."
