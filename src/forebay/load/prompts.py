"""Prompts of a wanted length; no two begin alike, so no cache of prefixes flatters a server.

Within a run that is certain. Between runs it is the salt of the plan that makes them differ: the
source of the numbers must be made with it.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

# Short, common words: with the usual tokenizers each is one token, with its blank.
_TEXT = (
    "the river runs past a mill and under an old stone bridge where two people stand and talk "
    "about rain wind light and the long way home while a boat with one red sail goes down to "
    "the sea and no one knows what it will find there or when it may come back again"
)
_WORDS = _TEXT.split()
NONCE_TOKENS = 8
"""About what the eight figures at the front take."""


class Prompts:
    """Makes prompts of about so many tokens, repeatably."""

    def __init__(self, source: random.Random, tokens_max: int) -> None:
        self._nonce = source.getrandbits(32)
        self._step = source.getrandbits(32) | 1  # odd: all 2^32 numbers come before one comes again
        count = max(1, tokens_max)
        words = [_WORDS[i % len(_WORDS)] for i in range(count)]
        self._text = " ".join(words)
        self._ends = [end - 1 for end in accumulate(len(word) + 1 for word in words)]

    def make(self, tokens: int) -> str:
        """Return a prompt of about that many tokens, never the same twice."""
        self._nonce = (self._nonce + self._step) % 2**32
        nonce = f"{self._nonce:08x}"
        words = min(tokens - NONCE_TOKENS, len(self._ends))
        return nonce if words < 1 else f"{nonce} {self._text[: self._ends[words - 1]]}"
