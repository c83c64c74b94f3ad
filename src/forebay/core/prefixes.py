"""Model of the nodes' prompt caches, from the requests that they were sent.

An engine caches what it computed for a prompt, so a prompt with the same beginning takes less
time. This module remembers which parts of prompts a node has seen, with least-recently-used
eviction as in an engine, and measures the saved time on the requests themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from forebay.core.events import Arrived

PARTS_MAX: Final = 64
TOKEN_S: Final = 0.0002
"""What a prompt token takes while nothing is measured: engines compute some thousands a second."""
TOKEN_S_MAX: Final = 0.02
PRIOR_TOKENS: Final = 500.0
"""How much that guess weighs: like one request with a prompt of so many tokens. Not more, or a slow
node with short prompts is taken for a fast one for hundreds of requests."""
FORGETS: Final = 0.995
"""Of each request that is measured, so much remains with the next: a few hundred count."""


class PrefixCache:
    """The parts of prompts that one node has seen lately."""

    def __init__(self) -> None:
        self._parts: dict[int, None] = {}  # the least recently used first

    def cached_tokens(self, arrival: Arrived) -> int:
        """Return how many tokens of a prompt need not be computed here again."""
        prefix, tokens = arrival.prefix, arrival.prefix_tokens
        parts, found, at = self._parts, 0, 0
        if parts:
            for part in prefix:
                if part not in parts or at == len(tokens):
                    break
                found += tokens[at]
                at += 1
        return found

    def note(self, prefix: tuple[int, ...], parts_max: int) -> None:
        """Remember what a node computes now; of one prompt, its end is forgotten first."""
        parts = self._parts
        for part in reversed(prefix[:PARTS_MAX]):
            parts.pop(part, None)
            parts[part] = None
        while len(parts) > parts_max:
            del parts[next(iter(parts))]


class PrefillTime:
    """How long a lane's nodes take to compute a prompt token: least squares over what was served.

    A service takes `a * prompt tokens that were not cached + b * output tokens`; `a` is wanted.
    """

    def __init__(self) -> None:
        self._in_in = PRIOR_TOKENS * PRIOR_TOKENS
        self._in_s = TOKEN_S * self._in_in
        self._in_out = self._out_out = self._out_s = 0.0

    def add(self, prompt_tokens: int, output_tokens: int, service_s: float) -> None:
        """Take one request that was served: what of its prompt had to be computed, its answer."""
        given, made = float(prompt_tokens), float(output_tokens)
        self._in_in = FORGETS * self._in_in + given * given
        self._in_out = FORGETS * self._in_out + given * made
        self._out_out = FORGETS * self._out_out + made * made
        self._in_s = FORGETS * self._in_s + given * service_s
        self._out_s = FORGETS * self._out_s + made * service_s

    def token_s(self) -> float:
        """Return seconds per prompt token."""
        both = self._in_in * self._out_out - self._in_out * self._in_out
        if both > 1e-9 * self._in_in * self._out_out:
            found = (self._in_s * self._out_out - self._out_s * self._in_out) / both
        else:  # all requests are alike: it cannot be told from the output's time
            found = TOKEN_S
        if found <= 0.0:
            return 0.0
        return found if found < TOKEN_S_MAX else TOKEN_S_MAX
