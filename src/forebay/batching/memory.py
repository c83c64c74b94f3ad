"""How much memory a request needs while it runs: its key-value cache, from the model's shape.

For every token, prompt and answer alike, each layer keeps one key and one value per key-value
head, of `head_dim` numbers each. So

    memory = (prompt tokens + max_tokens) x 2 x layers x kv_heads x head_dim x bytes

which is exact for a dense transformer with multi-head, grouped-query or multi-query attention,
whose cache grows with every token. It counts all of `max_tokens`, because a request may use them
all, and running out in the middle costs more than waiting. It does not know of weights and
activations (leave them out of the budget), of the last, half-filled block of a paged cache
(round up in your own estimator), of sliding windows or shared prefixes (it is then too high,
which is safe).
"""

import math
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass

from forebay.batching.checks import at_least
from forebay.batching.request import Request

Tokenizer = Callable[[str], Sized]
"""Turns a text into its tokens; only their number is used."""

Estimator = Callable[[Request], int]
"""Says how many bytes a request will need. Called once per request, at `enqueue`."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The four numbers of a model that decide how large its key-value cache is.

    They stand in a model's `config.json`: `num_hidden_layers`, `num_key_value_heads`, and
    `head_dim` (or `hidden_size` / `num_attention_heads`).

    >>> llama_8b = ModelShape(layers=32, kv_heads=8, head_dim=128, bytes=2)
    >>> llama_8b.bytes_per_token    # 128 KiB
    131072
    """

    layers: int
    """Transformer layers that keep a cache."""

    kv_heads: int
    """Key-value heads per layer: fewer than attention heads where these share them."""

    head_dim: int
    """Numbers in one head's key, and in its value."""

    bytes: float = 2
    """Bytes per number: 2 for fp16 and bf16 (the default, being most common), 1 for fp8."""

    def __post_init__(self) -> None:
        for name in ("layers", "kv_heads", "head_dim"):
            at_least(1, name, getattr(self, name))
        if not 0 < self.bytes < math.inf:
            raise ValueError(f"bytes must be a positive number, not {self.bytes!r}")

    @property
    def bytes_per_token(self) -> float:
        """Return the cache of one token, in bytes."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.bytes

    def memory_bytes(self, tokens: int) -> int:
        """Return the cache of that many tokens, in whole bytes, rounded up."""
        return math.ceil(tokens * self.bytes_per_token)


class MemoryEstimator:
    """Estimate a request's memory from the model's shape and the model's own tokenizer.

    The tokenizer is whatever gives the tokens of a text. With a Hugging Face tokenizer pass
    `tokenizer.encode`: calling the tokenizer itself gives a mapping, whose length is not the
    number of tokens, and which is refused.

    >>> shape = ModelShape(layers=2, kv_heads=1, head_dim=4, bytes=2)    # 32 bytes a token
    >>> estimate = MemoryEstimator(shape, tokenizer=str.split)
    >>> estimate(Request("r1", "why is it so", max_tokens=6))            # (4 + 6) x 32
    320
    """

    __slots__ = ("shape", "tokenizer")

    def __init__(self, shape: ModelShape, tokenizer: Tokenizer) -> None:
        self.shape = shape
        self.tokenizer = tokenizer

    def __call__(self, request: Request) -> int:
        """Return the bytes that `request` needs at most."""
        return self.shape.memory_bytes(self._prompt_tokens(request) + request.max_tokens)

    def _prompt_tokens(self, request: Request) -> int:
        if not isinstance(request.prompt, str):
            return len(request.prompt)
        tokens = self.tokenizer(request.prompt)
        if isinstance(tokens, Mapping):
            raise TypeError(
                f"the tokenizer gave a mapping with keys {sorted(tokens)} for request"
                f" {request.id!r}; pass a callable that gives the tokens, such as tokenizer.encode"
            )
        return len(tokens)


def approximate_tokens(text: str) -> Sized:
    """Stand in for a tokenizer: one token for every four bytes of text, rounded up.

    >>> len(approximate_tokens("Why is the sky blue?"))
    5
    """
    return range(math.ceil(len(text.encode(errors="replace")) / 4))


DEFAULT_SHAPE = ModelShape(layers=32, kv_heads=8, head_dim=128, bytes=2)
"""The published shape of Llama 3.1 8B, and of many models of that size: 128 KiB a token."""

default_estimator: Estimator = MemoryEstimator(DEFAULT_SHAPE, approximate_tokens)
"""What a queue uses that was given no estimator: right for an 8B model, to within a tokenizer."""
