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
SPREAD_SLOTS: Final = 4.0
"""How many more requests than the idlest a node may run before its cache counts for less."""
CROWD: Final = 0.02
"""How much of a service a request loses by each other that runs beside it. An engine decodes the
answers of a batch together, in steps that become a little longer with each. Less than this is not
worth a pile, for example the few hundred tokens of instructions that all conversations share."""
TOKEN_S: Final = 0.0002
"""What a prompt token takes while nothing is measured: engines compute some thousands a second."""
TOKEN_S_MAX: Final = 0.02
PRIOR_TOKENS: Final = 500.0
"""How much that guess weighs: like one request with a prompt of so many tokens. Not more, or a slow
node with short prompts is taken for a fast one for hundreds of requests."""
SERVICE_S: Final = 1.0
"""What a request takes while none of its lane has ended, to weigh load against a cache: as long as
5,000 prompt tokens at that first guess. With nothing here, all of a burst that share a beginning
would start on one node."""
HOLD_S_MIN: Final = 0.05
"""Nobody waits for a cache that saves less: a person does not notice it, and to keep a request back
costs more than to start it."""
TINY: Final = 1e-9
FORGETS: Final = 0.995
"""Of each request that is measured, so much remains with the next: a few hundred count."""


class PrefixCache:
    """The parts of prompts that one node has seen lately."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: dict[int, None] = {}  # the least recently used first

    def cached_tokens(self, arrival: Arrived) -> int:
        """Return how many tokens of a prompt need not be computed here again."""
        return self.tokens_of(arrival.prefix, arrival.prefix_tokens)

    def tokens_of(self, prefix: tuple[int, ...], tokens: tuple[int, ...]) -> int:
        """Return the same of a chain of parts, and how many tokens each has."""
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

    __slots__ = ("_in_in", "_in_out", "_in_s", "_out_out", "_out_s")

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
        return min(max(found, 0.0), TOKEN_S_MAX)

    def tokens_to_wait_for(self) -> float:
        """Return how many more tokens must be cached on a busy node for anybody to wait for it."""
        return HOLD_S_MIN / max(self.token_s(), TINY)


def worth_s(
    cached_tokens: int, more_running: int, slots: int, token_s: float, service_s: float
) -> float:
    """Return what a prompt's cache on a node with a free slot saves, less what its load costs.

    `more_running` is by how many more requests it runs than the idlest.
    """
    saved_s = float(cached_tokens) * token_s
    more = float(more_running)
    if more > 0.0:
        services = CROWD * more
        if more > SPREAD_SLOTS:
            services += (more - SPREAD_SLOTS) / float(slots)
        saved_s -= services * service_s
    return saved_s
