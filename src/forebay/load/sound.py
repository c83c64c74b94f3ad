"""Whether a saved run can be one: numbers that no run has would only fail later, and unnamed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from forebay.load.samples import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.load.document import Document
    from forebay.load.mix import Mix

NUMBER_MAX = 1e30
"""Far above any sum that a run could have, far below where computing with it overflows."""
ANY_SIGN = ("settings.seed",)


def fault_of(made: Document) -> str | None:
    """Return what is wrong with a document, naming the field; None if nothing is."""
    for path, value in _numbers(msgspec.to_builtins(made), ""):
        if not (value <= NUMBER_MAX and (value >= 0 or path in ANY_SIGN)):
            return f"{path} must be a number between 0 and {NUMBER_MAX:g}"
    for name, mix in (("users", made.settings.users), ("priorities", made.settings.priorities)):
        if mix is not None and not _is_mix(mix):
            return f"settings.{name} needs names, and a weight above 0 for each"
    facts = (
        (made.summary.elapsed_s > 0, "summary.elapsed_s must be above 0"),
        (made.series.width_s > 0, "series.width_s must be above 0"),
        (made.samples.step >= 1, "samples.step must be 1 or more"),
        (made.samples.columns == COLUMNS, f"samples.columns must be {', '.join(COLUMNS)}"),
    )
    return next((text for is_so, text in facts if not is_so), None)


def _is_mix(mix: Mix) -> bool:
    return len(mix.names) == len(mix.weights) > 0 and all(weight > 0 for weight in mix.weights)


def _numbers(value: object, path: str) -> Iterator[tuple[str, float]]:
    """Yield every number with the path of its field."""
    if isinstance(value, int | float):
        yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _numbers(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            if not isinstance(inner, str):  # of which rows are full
                yield from _numbers(inner, f"{path}[{i}]")
