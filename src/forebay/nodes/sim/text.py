"""What the simulated node says: readable English that never pretends to be a model's."""

import random
import zlib
from itertools import count
from math import sqrt

EMBEDDING_SIZE = 64


def answer_words(model: str, prompt: str, tokens_max: int, forced: bool) -> list[str]:
    """Return the answer, one word (with its blank) per token, at most `tokens_max` of them.

    It stops where its text ends, as a model would; `forced` (the `ignore_eos` of vLLM and
    llama.cpp) goes on to exactly `tokens_max`, for measurements.
    """
    words = len(prompt.split())
    text = (
        f"This is a simulated answer: Forebay's sim-node took the time that {model} might have "
        f"taken, but no model has read your {words} {'word' if words == 1 else 'words'}. Start "
        "Forebay with a real node to get a real answer."
    )
    spoken = text.split()
    if forced:
        for sentence in count(2):
            if len(spoken) >= tokens_max:
                break
            spoken += f"This is sentence {sentence} of the same simulated answer.".split()
    spoken = spoken[:tokens_max]
    return [word if place == 0 else f" {word}" for place, word in enumerate(spoken)]


def token_count(text: str) -> int:
    """Estimate tokens as four characters each: the usual figure for English."""
    return max(1, -(-len(text) // 4))


def prompt_text(value: object) -> str:
    """Collect every text of a prompt, whatever the dialect: messages, parts, lists, strings."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(prompt_text, value)))
    if isinstance(value, dict):
        return prompt_text(value.get("content") or value.get("text") or "")
    return ""


def embedding(text: str) -> list[float]:
    """Return a vector of length 1 that depends on the text alone, and means nothing."""
    # Seeded by a checksum, not by `hash`, which differs between two starts of Python.
    chance = random.Random(zlib.crc32(text.encode()))
    vector = [chance.gauss(0.0, 1.0) for _ in range(EMBEDDING_SIZE)]
    length = sqrt(sum(value * value for value in vector))
    return [value / length for value in vector]
