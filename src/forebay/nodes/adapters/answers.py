"""Read what nodes answer without believing it: every field may be missing, huge or of any type."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from forebay.errors import BackendFailed
from forebay.nodes.adapters.report import ProbeReply

MODELS_MAX = 10_000
"""A catalogue beyond this is a mistake or an attack; the largest real ones list hundreds."""
NAME_CHARS_MAX = 512
"""Longer than any path or tag that names a model."""
SLOTS_MAX = 100_000
"""A report beyond this is a mistake; vLLM's own default is in the hundreds."""
VERSION_CHARS_MAX = 64
BYTES_MAX = 1 << 50
"""A PiB: no GPU has as much."""
CONTEXT_TOKENS_MAX = 1_000_000_000
CONTEXT_FIELDS = ("max_model_len", "context_length", "loaded_context_length", "context_window")
"""How servers call the tokens that fit into a model's context, the surest first."""

ABOUT_MAX = 1000
ABOUT_BYTES_MAX = 2048
"""Of one value."""
ABOUT_FIELDS = (
    "created", "owned_by", "root", "parent", *CONTEXT_FIELDS, "max_context_length", "meta", "type",
    "publisher", "arch", "quantization", "capabilities",
    "modified_at", "size", "digest", "details",
)  # fmt: skip
"""What is kept of a list of models: of OpenAI's form, llama.cpp's and LM Studio's, of Ollama's."""


def expect_ok(reply: ProbeReply, path: str) -> None:
    """Raise `BackendFailed` unless the status is 200."""
    if reply.status in {401, 403}:
        raise BackendFailed(f"{path} answered {reply.status}: the node needs an API key")
    if reply.status != 200:
        raise BackendFailed(f"{path} answered {reply.status}")


def json_object(reply: ProbeReply, path: str) -> dict[str, object]:
    """Return the JSON object of a 200; anything else raises `BackendFailed`."""
    expect_ok(reply, path)
    try:
        value = msgspec.json.decode(reply.body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BackendFailed(f"{path} answered something that is not JSON") from error
    if not isinstance(value, dict):
        raise BackendFailed(f"{path} answered JSON that is not an object")
    return value


def json_object_if_there(reply: ProbeReply, path: str) -> dict[str, object]:
    """Return the JSON object of a 200, or nothing: for routes that only some versions have."""
    try:
        return json_object(reply, path)
    except BackendFailed:
        return {}


def entries(answer: dict[str, object], field: str, path: str) -> list[dict[str, object]]:
    """Return the objects of a list field; a field that is not a list raises `BackendFailed`.

    Null counts as an empty list: that is how Go servers such as Ollama write one.
    """
    value = answer.get(field, ...)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BackendFailed(f"{path} answered no list of {field}")
    return [entry for entry in value if isinstance(entry, dict)]


def names(values: Iterable[object]) -> tuple[str, ...]:
    """Keep what can be a model's name, once each, in order."""
    return tuple(islice(dict.fromkeys(_plain(values)), MODELS_MAX))


def _plain(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        # `isprintable` refuses control characters, line breaks and lone surrogates, which would
        # otherwise travel into headers, logs and event streams.
        fits = isinstance(value, str) and 0 < len(value) <= NAME_CHARS_MAX
        if isinstance(value, str) and fits and value.isprintable() and value.strip():
            yield value


def count(value: object) -> int | None:
    """Return a whole number of slots that makes sense, else None."""
    return _whole(value, 1, SLOTS_MAX)


def _whole(value: object, least: int, most: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if least <= value <= most else None


def metric(reply: ProbeReply, name: bytes) -> int:
    """Return the sum of a metric's samples in a page for Prometheus; 0 where there are none.

    >>> page = b'# TYPE vllm:n gauge\\nvllm:n{engine="0"} 2.0\\nvllm:n{engine="1"} 1.0\\n'
    >>> metric(ProbeReply(200, {}, page), b"vllm:n")
    3
    """
    if reply.status != 200:
        return 0
    total = 0.0
    for sample in re.finditer(
        rb"^%b(?:\{[^\n]*\})? ([0-9.e+]{1,24})" % re.escape(name), reply.body, re.M
    ):
        try:
            total += float(sample[1])
        except ValueError:
            continue
    return int(min(total, SLOTS_MAX))


def share(value: object) -> float | None:
    """Return a number from 0 to 1, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= 1 else None


def whole_bytes(value: object) -> int | None:
    """Return an amount of memory that makes sense, else None."""
    return _whole(value, 0, BYTES_MAX)


def context_tokens(value: object) -> int | None:
    """Return a context size that makes sense, else None."""
    return _whole(value, 1, CONTEXT_TOKENS_MAX)


def contexts(models: list[dict[str, object]], *name_fields: str) -> dict[str, int]:
    """Return how much fits into each model's context, as far as a list of models tells."""
    found: dict[str, int] = {}
    for model in models[:MODELS_MAX]:
        sizes = (context_tokens(model.get(field)) for field in CONTEXT_FIELDS)
        size = next((size for size in sizes if size is not None), None)
        if size is not None:
            for name in names(model.get(field) for field in name_fields):
                found[name] = size
    return found


def descriptions(
    models: list[dict[str, object]], *name_fields: str
) -> dict[str, dict[str, object]]:
    """Return what a list says of each model: what is known to be harmless, and is not too long."""
    found: dict[str, dict[str, object]] = {}
    for entry in models[:ABOUT_MAX]:
        kept = {field: entry[field] for field in ABOUT_FIELDS if _is_fit(entry.get(field))}
        aliases = entry.get("aliases")
        given = [entry.get(field) for field in name_fields]
        if kept:
            for name in names([*given, *(aliases if isinstance(aliases, list) else ())]):
                found.setdefault(name, kept)
    return found


def _is_fit(value: object) -> bool:
    """Say whether a value may be shown to others: whatever it is, it is small."""
    if value is None or isinstance(value, bool | int | float):
        return value is not None
    if isinstance(value, str):
        return len(value) <= NAME_CHARS_MAX and value.isprintable()
    try:
        return len(msgspec.json.encode(value)) <= ABOUT_BYTES_MAX
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return False


def version_text(value: object) -> str:
    """Return a version that is fit to be shown, else ""."""
    if isinstance(value, str) and len(value) <= VERSION_CHARS_MAX and value.isprintable():
        return value
    return ""


def version_at_least(version: str, minimum: tuple[int, ...]) -> bool:
    """Compare dotted numbers; what cannot be read counts as new (a build from source).

    >>> version_at_least("0.13.5", (0, 14)), version_at_least("0.14.0-rc1", (0, 14))
    (False, True)
    >>> version_at_least("v0.40.12+cuda", (0, 14)), version_at_least("unknown", (0, 14))
    (True, True)
    """
    numbers = []
    for part in version.removeprefix("v").split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits or len(digits) > 9:
            break
        numbers.append(int(digits))
    # 0.0.0 is what Ollama and others call themselves when built from source.
    return not any(numbers) or tuple(numbers) >= minimum
