"""The models that a caller may ask for, and those most like a name that there is not.

Names are compared by the pairs of letters that they share (Dice's coefficient, 2 x shared / all):
a microsecond for each name, so that a flood of wrong names costs little.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from forebay.gateway.errors.http_error import HttpError
from forebay.relay.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.gateway.hot.admission import Admission
    from forebay.gateway.hot.keys import KeyRing
    from forebay.nodes.registry import Nodes
    from forebay.settings import ResolvedKey

SUGGESTED_MAX = 3
COMPARED_MAX = 500
NAME_LENGTH_MAX = 100
"""Of what is asked for; a longer name is no slip of the finger."""
ALIKE_MIN = 0.5
BEGINNING_MIN = 3
"""Letters by which a name may be begun, and be meant."""
SHOWN_LENGTH_MAX = 80
"""Of a name in a message."""


class ModelNames:
    """What can be asked for by whom."""

    def __init__(self, nodes: Nodes, admission: Admission, keys: KeyRing) -> None:
        self._nodes = nodes
        self._admission = admission
        self._keys = keys

    def usable(self, key: ResolvedKey | None, family: str) -> list[str]:
        """Return what the holder of a key may ask for, aliases included, in order."""
        names = self._nodes.models(family)
        present = set(names)
        aliases = self._admission.aliases
        names += [alias for alias, target in aliases.items() if target in present]
        if key is not None and key.models:
            names = [
                name
                for name in names
                if name in key.models or aliases.get(name, name) in key.models
            ]
        return sorted(set(names))

    def check(self, asked: str, key: ResolvedKey | None, family: str, param: str) -> None:
        """Raise HttpError for a model that the key may not use, or that no node has."""
        if not self._admission.may_use(key, asked):
            raise HttpError("forbidden", "this key may not use this model", param)
        model, fallbacks = self._admission.resolve(asked)
        known = any(self._nodes.knows(name, family) for name in (model, *fallbacks))
        if not known and not self._nodes.is_starting():
            raise HttpError.of(self.unknown(asked, key, family, param))

    def aliased(self, name: str) -> str:
        """Return the model that an alias stands for; any other name as it is."""
        return self._admission.aliases.get(name, name)

    def explained(self, problem: Problem, asked: str, owner: str, family: str) -> Problem:
        """Return the problem with what an owner can ask for instead."""
        key = self._keys.of_owner(owner) if owner else None
        revoked = key is None and bool(self._keys)
        return about_unknown(problem, asked, [] if revoked else self.usable(key, family))

    def unknown(self, asked: str, key: ResolvedKey | None, family: str, param: str) -> Problem:
        """Return the problem of a model that no node has."""
        problem = Problem("model_not_found", "", param)
        return about_unknown(problem, asked, self.usable(key, family))


def nearest(asked: str, names: Iterable[str]) -> list[str]:
    """Return the names most like the one asked for, the likest first.

    >>> nearest("mistrl", ["llama3:8b", "mistral", "mixtral"])
    ['mistral']
    >>> nearest("llama3", ["llama3:8b", "llama3:70b", "gemma"])
    ['llama3:8b', 'llama3:70b']
    >>> nearest("smollm", ["smollm2-135m-instruct"])
    ['smollm2-135m-instruct']
    >>> nearest("gpt-4o", ["llama3:8b"])
    []
    """
    if not asked or len(asked) > NAME_LENGTH_MAX:
        return []
    wanted = _pairs(asked)
    begun = asked.lower() if len(asked) >= BEGINNING_MIN else None
    alike = [
        (likeness, name)
        for name in list(names)[:COMPARED_MAX]
        if (likeness := _likeness(wanted, _pairs(name))) >= ALIKE_MIN
        or (begun is not None and name.lower().startswith(begun))
    ]
    ranked = sorted(alike, key=lambda pair: -pair[0])
    return [name for _, name in ranked[:SUGGESTED_MAX]]


def about_unknown(problem: Problem, asked: str, usable: list[str]) -> Problem:
    """Return the problem of a model that there is not, with those that may be meant or used.

    In the message too, since that is all that many clients show.

    >>> problem = Problem("model_not_found", "")
    >>> about_unknown(problem, "mistrl", ["llama3:8b", "mistral"]).message
    'no node has the model "mistrl"; did you mean "mistral"?'
    >>> about_unknown(problem, "gpt-4o", ["a", "b", "c", "d"]).message
    'no node has the model "gpt-4o"; there are "a", "b", "c" and 1 more'
    """
    message = f"no node has the model {_quoted(asked)}"
    details = {**problem.details, "model": _shown(asked)}
    if near := nearest(asked, usable):
        details["suggestions"] = near
        message += f"; did you mean {' or '.join(map(_quoted, near))}?"
    elif usable:
        first = usable[:SUGGESTED_MAX]
        details["available"] = first
        more = len(usable) - len(first)
        listed = ", ".join(map(_quoted, first)) + (f" and {more} more" if more else "")
        message += f"; there {'is' if len(usable) == 1 else 'are'} {listed}"
    return Problem(problem.code, message, problem.param, problem.retry_after_s, details)


def _quoted(name: str) -> str:
    return f'"{_shown(name)}"'


def _shown(name: str) -> str:
    """Return a name as it can stand in a sentence, whoever made it up.

    >>> _shown("a\\nb"), len(_shown("x" * 1000))
    ('a?b', 80)
    """
    cut = name if len(name) <= SHOWN_LENGTH_MAX else f"{name[: SHOWN_LENGTH_MAX - 1]}…"
    return "".join(letter if letter.isprintable() else "?" for letter in cut)


@lru_cache(maxsize=1024)
def _pairs(name: str) -> frozenset[str]:
    text = f" {name.lower()}"  # its first letter counts twice
    return frozenset(text[i : i + 2] for i in range(len(text) - 1))


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return 2.0 * len(one & other) / (len(one) + len(other))
