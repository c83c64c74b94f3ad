"""The model of the example: what the command line says, and texts as tokens and back."""

import argparse
from typing import Any

import torch
import transformers

from forebay.batching.transformers import BatchingEngine

RANDOM = {"tiny": (32, 64, 2, 4, 2), "1b": (2048, 8192, 16, 32, 8)}
SHAPE = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
         "num_key_value_heads")  # fmt: skip
NUMBERS = (
    ("--port", 8001, "0 takes a free one"),
    ("--slots", 64, "requests in one step"),
    ("--capacity", 256, "requests that may wait"),
    ("--block-size", 256, "tokens of one block of the cache"),
    ("--blocks", None, "of the cache; else what the GPU has room for, or 64"),
    ("--step-tokens", None, "tokens in one step; else by the GPU, or 256"),
)


class ByteTokenizer:
    """A token for each byte, for models with random weights; what is not printable is a dot."""

    chat_template = None

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: list[int], **_: object) -> str:
        return "".join(chr(token) if 32 <= token < 127 else "." for token in tokens)


class TextStream:
    """Turns tokens into text piece by piece; half a character waits for its other half."""

    def __init__(self, tokenizer: Any) -> None:
        self._decode = tokenizer.decode
        self._before: list[int] = []  # the last piece: some tokens are read by what precedes them
        self._tokens: list[int] = []

    def add(self, tokens: list[int], *, is_last: bool = False) -> str:
        self._tokens += tokens
        text: str = self._decode(self._before + self._tokens, skip_special_tokens=True)
        if text.endswith("\ufffd") and len(self._tokens) < 8 and not is_last:
            return ""
        known = len(self._decode(self._before, skip_special_tokens=True))
        self._before, self._tokens = self._tokens, []
        return text[known:]


def load(options: argparse.Namespace) -> tuple[BatchingEngine, Any]:
    """Return the engine that the command line asks for, and the tokenizer of its model."""
    on_gpu = torch.cuda.is_available()
    tokenizer: Any = ByteTokenizer()
    if options.random:
        shape = dict(zip(SHAPE, RANDOM[options.random], strict=True))
        size = {"vocab_size": 256, "max_position_embeddings": 131_072, "eos_token_id": None}
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**size, **shape))
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
        model = transformers.AutoModelForCausalLM.from_pretrained(options.model)
    model = model.to("cuda" if on_gpu else "cpu", torch.bfloat16 if on_gpu else torch.float32)
    config = transformers.ContinuousBatchingConfig(
        block_size=options.block_size,
        num_blocks=options.blocks or (None if on_gpu else 64),
        max_batch_tokens=options.step_tokens or (None if on_gpu else 256),
        max_requests_per_batch=options.slots,
    )
    capacity, sharing = options.capacity, "round_robin"
    engine = BatchingEngine(model.eval(), capacity=capacity, fairness=sharing, batching=config)
    return engine, tokenizer


def read_options(description: str) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=description)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", help="a folder, or a name, that transformers can load")
    which.add_argument("--random", choices=sorted(RANDOM), help="random weights, for trying it out")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--name", help="of the model; else its folder or size")
    for name, default, words in NUMBERS:
        parser.add_argument(name, type=int, default=default, help=words)
    return parser.parse_args()
