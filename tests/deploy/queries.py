"""PromQL taken apart: which series a query asks for, and whether a gateway has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import promql_parser

from forebay.gateway.errors.codes import CODES
from forebay.gateway.metrics import OF_THE_FLEET
from tools.reference.metrics import described

if TYPE_CHECKING:
    from collections.abc import Iterator

ADDED = frozenset({"job", "instance"})
"""Labels that Prometheus adds to everything it reads."""
SERIES = {
    series: ADDED | set(metric.labels) | ({"le"} if series.endswith("_bucket") else set())
    for metric in described()
    for series in metric.series
} | {"up": ADDED, "ALERTS": ADDED | {"alertname", "alertstate"}}
"""Every series there is, those of Prometheus' own included, and its labels."""
CODE = set(CODES)
VALUES = {
    "outcome": CODE | {"served", "passed_through", "cancelled"},
    "reason": CODE,
    "status": {"queued", "running", "completed", "failed", "cancelled"},
    "priority": {"high", "normal", "low"},
    "state": {"leading", "following", "lost"},
    "mode": {"coordinated", "seeking", "alone", "cut_off"},
    "what": {"settings", "version"},
}
"""What may be asked of a label; of others, anything."""


class Fault(NamedTuple):
    """Something that a query asks for and no gateway has."""

    what: str


def faults(query: str) -> list[Fault]:
    """Return all that is wrong with a query; one that is not PromQL at all raises ValueError."""
    return list(_faults(parsed(query), frozenset()))


def parsed(query: str) -> Any:
    return promql_parser.parse(query.replace("$__rate_interval", "5m"))


def _faults(node: Any, wanted: frozenset[str]) -> Iterator[Fault]:
    """Look at a node and below; `wanted` are the labels that what is around it works with."""
    match type(node).__name__:
        case "VectorSelector":
            yield from _of_selector(node, wanted)
        case "AggregateExpr":
            if lost := wanted - _named(node.modifier):
                yield Fault(f"{', '.join(sorted(lost))} is summed away")
            yield from _faults(node.expr, _named(node.modifier))
        case _:
            for inner, needed in _inside(node, wanted):
                yield from _faults(inner, needed)


def _inside(node: Any, wanted: frozenset[str]) -> list[tuple[Any, frozenset[str]]]:
    """Return what a node is made of, and the labels that are wanted of each part."""
    match type(node).__name__:
        case "BinaryExpr":
            joined = _named(node.modifier.matching) if node.modifier else frozenset()
            return [(node.lhs, wanted | joined), (node.rhs, joined)]
        case "Call":
            needed = {"le"} if node.func.name == "histogram_quantile" else set()
            return [(argument, wanted | needed) for argument in node.args]
        case "MatrixSelector":
            return [(node.vector_selector, wanted)]
        case "ParenExpr":
            return [(node.expr, wanted)]
        case "NumberLiteral":
            return []
        case other:
            raise AssertionError(f"{other} is new here: say what its labels are")


def _of_selector(node: Any, wanted: frozenset[str]) -> Iterator[Fault]:
    if node.name not in SERIES:
        yield Fault(f"there is no series {node.name}")
        return
    matchers = node.matchers.matchers
    if unknown := (wanted | {matcher.name for matcher in matchers}) - SERIES[node.name]:
        yield Fault(f"{node.name} has no label {', '.join(sorted(unknown))}")
    for matcher in matchers:
        known = VALUES.get(matcher.name)
        for value in matcher.value.split("|") if known else ():
            if value not in (known or ()):
                yield Fault(f"{matcher.name} is never {value}")


def added_up(node: Any, *, is_summed: bool = False) -> set[str]:
    """Return the series of a whole fleet that a query adds up over its gateways.

    `is_summed` says whether what is around adds up, or divides and so on, over gateways.
    """
    match type(node).__name__:
        case "VectorSelector":
            return {node.name} if is_summed and node.name in OF_THE_FLEET else set()
        case "AggregateExpr":
            if "instance" not in _named(node.modifier):
                is_summed = str(node.op) not in ("max", "min")
            return added_up(node.expr, is_summed=is_summed)
        case _:
            inner = _inside(node, frozenset())
            return set().union(*(added_up(part, is_summed=is_summed) for part, _ in inner))


def labels_left(node: Any) -> frozenset[str]:
    """Return the labels of what a query answers."""
    match type(node).__name__:
        case "VectorSelector":
            return frozenset(SERIES[node.name])
        case "AggregateExpr":
            return _named(node.modifier)
        case "BinaryExpr":
            return labels_left(node.lhs) or labels_left(node.rhs)
        case "Call":
            return frozenset().union(*map(labels_left, node.args)) - {"le"}
        case "MatrixSelector":
            return labels_left(node.vector_selector)
        case "ParenExpr":
            return labels_left(node.expr)
        case _:
            return frozenset()


def _named(modifier: Any) -> frozenset[str]:
    """Return the labels of `by (...)` or `on (...)`; `without` and `ignoring` are not used here."""
    if modifier is None:
        return frozenset()
    assert str(modifier.type).rpartition(".")[2] in ("By", "Include"), modifier.type
    return frozenset(modifier.labels)
