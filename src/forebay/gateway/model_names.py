"""The models that a caller may ask for, and those most like a name that there is not.

Names are compared by the pairs of letters that they share (Dice's coefficient, 2 x shared / all):
a microsecond for each name, so that a flood of wrong names costs little.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from forebay.relay.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.gateway.admission import Admission
    from forebay.gateway.keys import KeyRing
    from forebay.nodes.registry import Nodes
    from forebay.settings import ResolvedKey

SUGGESTED_MAX = 3
COMPARED_MAX = 500
NAME_LENGTH_MAX = 100
"""Of what is asked for; a longer name is no slip of the finger."""
ALIKE_MIN = 0.5


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

    def near(self, asked: str, key_name: str, family: str) -> list[str]:
        """Return the names that may have been meant by whoever has the key of that name."""
        key = self._keys.named(key_name) if key_name else None
        if key is None and self._keys:
            return []  # revoked meanwhile
        return nearest(asked, self.usable(key, family))

    def unknown(self, asked: str, key: ResolvedKey | None, family: str, param: str) -> Problem:
        """Return the problem of a model that no node has."""
        problem = Problem("model_not_found", "no node has this model", param)
        return with_suggestions(problem, nearest(asked, self.usable(key, family)))


def nearest(asked: str, names: Iterable[str]) -> list[str]:
    """Return the names most like the one asked for, the likest first.

    >>> nearest("mistrl", ["llama3:8b", "mistral", "mixtral"])
    ['mistral']
    >>> nearest("llama3", ["llama3:8b", "llama3:70b", "gemma"])
    ['llama3:8b', 'llama3:70b']
    >>> nearest("gpt-4o", ["llama3:8b"])
    []
    """
    if not asked or len(asked) > NAME_LENGTH_MAX:
        return []
    wanted = _pairs(asked)
    alike = ((_likeness(wanted, _pairs(name)), name) for name in list(names)[:COMPARED_MAX])
    ranked = sorted((pair for pair in alike if pair[0] >= ALIKE_MIN), key=lambda pair: -pair[0])
    return [name for _, name in ranked[:SUGGESTED_MAX]]


def with_suggestions(problem: Problem, names: list[str]) -> Problem:
    """Return the problem with names that may have been meant, in words and as `suggestions`."""
    if not names:
        return problem
    listed = " or ".join(f'"{name}"' for name in names)
    return Problem(
        problem.code,
        f"{problem.message}; did you mean {listed}?",
        problem.param,
        problem.retry_after_s,
        {**problem.details, "suggestions": names},
    )


@lru_cache(maxsize=1024)
def _pairs(name: str) -> frozenset[str]:
    text = f" {name.lower()}"  # its first letter counts twice
    return frozenset(text[i : i + 2] for i in range(len(text) - 1))


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return 2.0 * len(one & other) / (len(one) + len(other))
