"""What the Tab key offers, read off the commands themselves: verbs, options and their values.

Any verb is completed without a line here. A parameter that wants more than its name says so with
`autocompletion` (see `offers.py`); one that is a path is left to the shell.
"""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WORD_BREAKS = ":=@"
"""Where bash ends a word, beside blanks, unless it says what is left of it after them."""
PLAIN = re.compile(r"[A-Za-z0-9._:/@+,][A-Za-z0-9._:/@+=,-]*")
"""Values that mean only themselves in every shell, and are no option.

Bash puts an offer on the line as it is, so that Enter would run what is in it; and models and nodes
are named by whoever runs them. What is not plain can be typed, with the quotes that it needs.
"""


class Offer(NamedTuple):
    """One thing that could be typed."""

    value: str
    help: str = ""


class Offers(NamedTuple):
    """What could be typed, or that it is a path."""

    offers: tuple[Offer, ...] = ()
    are_files: bool = False


def split_line(line: str) -> list[str]:
    """Return the words of a line that is still being typed; the last of them is not complete.

    >>> split_line("forebay jobs sh"), split_line("forebay jobs "), split_line("a 'b c")
    (['forebay', 'jobs', 'sh'], ['forebay', 'jobs', ''], ['a', 'b c'])
    """
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        words += lexer
    except ValueError:  # a quote that is not closed yet
        return [*words, lexer.token]
    return [*words, ""] if line[-1:].isspace() else words


def offers_for(root: Any, words: Sequence[str]) -> Offers:
    """Return what the last of the words could become; those before it are complete."""
    *before, last = words or [""]
    context = root.make_context("forebay", list(before), resilient_parsing=True)
    rest = list(before)
    while (found := _descended(context, rest)) is not None:
        context, rest = found
    return _Place(context, rest).offers_for(last)


def after_word_break(value: str, typed: str, replaced: str | None = None) -> str:
    """Return the part of an offer that bash wants; `replaced` is what it will take away for it.

    >>> after_word_break("llama3:8b", "llama3:"), after_word_break("mistral", "mi")
    ('8b', 'mistral')
    >>> after_word_break("llama3:8b", "llama3:", "llama3:")
    'llama3:8b'
    """
    if replaced is not None and typed.endswith(replaced):
        return value[len(typed) - len(replaced) :]
    return value[max(typed.rfind(mark) for mark in WORD_BREAKS) + 1 :]


def _descended(context: Any, words: list[str]) -> tuple[Any, list[str]] | None:
    """Return the context of the verb that the words name, and the words that are left for it."""
    verbs = getattr(context.command, "commands", None)
    if verbs is None:
        return None
    for index, word in enumerate(words):
        if word.startswith("-"):
            continue
        if word not in verbs:
            return None
        rest = words[index + 1 :]
        made = verbs[word].make_context(word, list(rest), parent=context, resilient_parsing=True)
        return made, rest
    return None


class _Place:
    """Where in a command line the cursor is."""

    def __init__(self, context: Any, words: Iterable[str]) -> None:
        self._context = context
        self._command = context.command
        self._params = self._command.get_params(context)
        self._options = {name: param for param in self._params for name in _names(param)}
        self._open: Any = None
        """The option whose value is typed."""
        self._given: set[str] = set()
        self._arguments = 0
        self._only_arguments = False
        for word in words:
            self._pass(word)

    def _pass(self, word: str) -> None:
        if self._open is not None:
            self._open = None
        elif word == "--" and not self._only_arguments:
            self._only_arguments = True
        elif word.startswith("-") and not self._only_arguments:
            name, equals, _ = word.partition("=")
            param = self._options.get(name)
            if param is not None:
                self._given.add(param.name)
                self._open = param if _takes_a_value(param) and not equals else None
        else:
            self._arguments += 1

    def offers_for(self, typed: str) -> Offers:
        if self._open is not None:
            return self._values(self._open, typed)
        if typed.startswith("-") and not self._only_arguments:
            return self._of_option(typed)
        if hasattr(self._command, "commands"):  # after a word that is no verb there is none
            return Offers() if self._arguments else Offers(tuple(self._verbs(typed)))
        arguments = [param for param in self._params if param.param_type_name == "argument"]
        if self._arguments < len(arguments):
            return self._values(arguments[self._arguments], typed)
        if arguments and arguments[-1].nargs == -1:
            return self._values(arguments[-1], typed)
        return Offers()

    def _of_option(self, typed: str) -> Offers:
        name, equals, value = typed.partition("=")
        if equals:
            param = self._options.get(name)
            found = self._values(param, value) if param is not None else Offers()
            return Offers(tuple(Offer(f"{name}={each.value}", each.help) for each in found.offers))
        return Offers(
            tuple(
                Offer(name, param.help or "")
                for name, param in self._options.items()
                if name.startswith(typed) and name.startswith("--") and self._is_wanted(param)
            )
        )

    def _is_wanted(self, param: Any) -> bool:
        if getattr(param, "hidden", False):
            return False
        return param.name not in self._given or getattr(param, "multiple", False)

    def _verbs(self, typed: str) -> Iterable[Offer]:
        commands = self._command.commands
        label = getattr(commands, "label", commands.get)  # a list imports nothing
        for name in commands:
            if name.startswith(typed) and not label(name).hidden:
                yield Offer(name, label(name).get_short_help_str(limit=80))

    def _values(self, param: Any, typed: str) -> Offers:
        if self._is_path(param):
            return Offers(are_files=True)
        found = param.shell_complete(self._context, typed)
        return Offers(
            tuple(
                Offer(item.value, item.help or "") for item in found if PLAIN.fullmatch(item.value)
            )
        )

    def _is_path(self, param: Any) -> bool:
        if self._command.callback is None:
            return False
        hint = get_type_hints(inspect.unwrap(self._command.callback)).get(param.name)
        return hint is Path or Path in get_args(hint)


def _names(param: Any) -> Sequence[str]:
    return [*param.opts, *param.secondary_opts] if param.param_type_name == "option" else []


def _takes_a_value(param: Any) -> bool:
    return not param.is_flag and not param.count
