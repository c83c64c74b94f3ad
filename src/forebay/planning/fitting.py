"""How long requests hold a slot, fitted from those that ran; robust, because logs have outliers.

A model's time is `first_s + prompt_s * prompt tokens + output_s * output tokens`. A slope is the
median of those between the points of the lower and of the upper half (Theil's incomplete method,
1950): up to a quarter of the points may be anything. What is not modelled: that a node is slower
the more it runs at once, prompts whose prefix is still in a node's cache, and the hour of the day.
"""

from __future__ import annotations

import random
from collections import Counter
from math import inf
from statistics import median
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from forebay.planning.traffic import Traffic, TrafficRequest

POINTS_MIN = 10
"""Below this a fit says nothing: the time is the median, whatever the tokens."""
NODE_RUNS_MIN = 20
NODE_DIFFERENCE_MIN = 0.1
"""Nodes that differ by less are taken to be equal: it may be chance."""
LOADS_MIN = 3
LOAD_S_MIN = 0.5
"""A change of model that costs less is taken for noise: nothing is loaded."""
WARM_RUNS_MIN = 3
"""So many runs without a load have to do where no model has enough for a fit."""
OVERLAP_S = 0.1
"""Two models that ran at once for less did not: clocks are read late now and then."""


class ServiceFit(Struct, frozen=True):
    """The time of one model, in seconds."""

    first_s: float
    prompt_s: float
    output_s: float
    points: int = 0
    """How many requests it was fitted from; 0 is assumed, not fitted."""

    def of(self, prompt_tokens: int, output_tokens: int) -> float:
        return self.head_s(prompt_tokens) + self.output_s * output_tokens

    def head_s(self, prompt_tokens: int) -> float:
        """Return the time to the first byte of a stream."""
        return self.first_s + self.prompt_s * prompt_tokens


ASSUMED = ServiceFit(0.02, 0.0002, 0.015)
"""For traces, which have no times: about a 7B model on one recent GPU."""


class Fits(Struct, frozen=True):
    """All that was learned from a log; of a trace, what is assumed."""

    models: dict[str, ServiceFit]
    slowness: dict[str, float]
    """By node: how many times the fitted time its requests take."""
    load_s: float
    """How long loading a model takes; 0 where models do not seem to be swapped."""
    cold: dict[int, float]
    """For how long requests waited on their node for their model to load, by their place."""


def fit_all(requests: Sequence[TrafficRequest], load_s: float = 0.0) -> Fits:
    """Fit what ran; models that never ran get the times of all.

    `load_s` is what somebody says that loads took: it holds where the log does not show it.
    """
    unsure = _maybe_cold(requests)
    models = _fit_models(requests, unsure)
    load_s = _load_s(requests, models, _well_known(requests, unsure)) or load_s
    if not load_s:
        models = _fit_models(requests, {})
        return Fits(models, _slowness(requests, models, {}), 0.0, {})
    cold = _cold(requests, models, load_s)
    models = _fit_models(*_less_loads(requests, cold))
    # Now all runs without a load count, which are more than those of which it was certain.
    load_s = _load_s(requests, models, _well_known(requests, cold)) or load_s
    cold = _cold(requests, models, load_s)
    models = _fit_models(*_less_loads(requests, cold))
    return Fits(models, _slowness(requests, models, cold), load_s, cold)


def _fit_models(requests: Sequence[TrafficRequest], but: Container[int]) -> dict[str, ServiceFit]:
    """Return the times of all models, from all requests but those at some places."""
    models: dict[str, list[TrafficRequest]] = {}
    for place, request in enumerate(requests):
        whole = models.setdefault(request.model, [])
        if request.is_whole and request.run_s and place not in but:
            whole.append(request)
    fits = {model: fit(whole) for model, whole in models.items() if whole}
    usual = fit([one for whole in models.values() for one in whole]) if fits else ASSUMED
    return {model: fits.get(model, usual) for model in models}


def with_service_times(traffic: Traffic, fits: Fits, seed: int) -> Traffic:
    """Give each request the time that it takes on a node of usual speed, its model being loaded.

    One that ran takes as long as it did, less the load of its model. For one that did not, the
    model's fit says how long, with the output of another request of that model, drawn at random.
    """
    source = random.Random(f"{seed}/outputs")
    outputs: dict[str, list[int]] = {}
    for one in traffic.requests:
        if one.run_s:
            outputs.setdefault(one.model, []).append(one.output_tokens)
    timed = []
    for place, one in enumerate(traffic.requests):
        warm_s = one.run_s - fits.cold.get(place, 0.0)
        if warm_s > 0:
            timed.append(replace(one, service_s=warm_s / fits.slowness.get(one.node, 1.0)))
            continue
        output = one.output_tokens
        if not (output or one.run_s) and one.model in outputs:
            output = source.choice(outputs[one.model])
            output = min(output, one.output_limit or output)
        service_s = fits.models[one.model].of(one.prompt_tokens, output)
        timed.append(replace(one, service_s=service_s, output_tokens=output))
    return replace(traffic, requests=timed)


def fit(requests: Sequence[TrafficRequest]) -> ServiceFit:
    """Return the time of one model's requests.

    The first byte of a stream tells prompt from output; of answers in one piece only the sum is
    known, and the two slopes are taken one after the other.
    """
    streams = [one for one in requests if one.stream and one.first_byte_s and one.output_tokens]
    if len(requests) < POINTS_MIN:
        return ServiceFit(median(one.run_s for one in requests), 0.0, 0.0, len(requests))
    if len(streams) >= POINTS_MIN:
        output_s = median((one.run_s - one.first_byte_s) / one.output_tokens for one in streams)
        heads = [(one.prompt_tokens, one.first_byte_s) for one in streams]
    else:
        output_s = slope([(one.output_tokens, one.run_s) for one in requests])
        heads = [(one.prompt_tokens, one.run_s - output_s * one.output_tokens) for one in requests]
    prompt_s = slope(heads)
    first_s = max(0.0, median(head_s - prompt_s * tokens for tokens, head_s in heads))
    return ServiceFit(first_s, prompt_s, max(0.0, output_s), len(requests))


def slope(points: Iterable[tuple[float, float]]) -> float:
    """Return by how much y grows with x, or 0 where it does not.

    >>> slope([(1, 2.0), (2, 4.0), (3, 99.0), (4, 8.0), (5, 10.0), (6, 12.0)])
    2.0
    """
    ordered = sorted(points)
    half = (len(ordered) + 1) // 2
    pairs = zip(ordered, ordered[half:], strict=False)
    rises = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in pairs if x2 > x1]
    return max(0.0, median(rises)) if rises else 0.0


def _slowness(
    requests: Sequence[TrafficRequest], fits: dict[str, ServiceFit], cold: dict[int, float]
) -> dict[str, float]:
    ratios: dict[str, list[float]] = {}
    for place, one in enumerate(requests):
        if one.is_whole and one.node and place not in cold:
            expected_s = fits[one.model].of(one.prompt_tokens, one.output_tokens)
            if expected_s > 0:
                ratios.setdefault(one.node, []).append(one.run_s / expected_s)
    found = {
        node: median(seen) if len(seen) >= NODE_RUNS_MIN else 1.0 for node, seen in ratios.items()
    }
    return {
        node: ratio if abs(ratio - 1.0) > NODE_DIFFERENCE_MIN else 1.0
        for node, ratio in found.items()
    }


def _load_s(
    requests: Sequence[TrafficRequest], fits: dict[str, ServiceFit], known: Container[str]
) -> float:
    """Return how long loads take; 0 where nodes do not seem to load anything.

    Where a node changes from one model to another and that takes long more often than not, it holds
    one model at a time; where another model still runs then, it holds both. Models whose times are
    not `known` tell nothing: they may just be slow.
    """
    extras = []
    for seen in _runs(requests).values():
        ends_s: dict[str, float] = {}
        before = ""
        for start_s, place in seen:
            one = requests[place]
            others_s = max((s for model, s in ends_s.items() if model != one.model), default=0.0)
            if before not in ("", one.model) and one.is_whole and one.model in known:
                overlaps = others_s > start_s + OVERLAP_S
                extras.append(0.0 if overlaps else _beyond_s(one, fits))
            before = one.model
            ends_s[before] = max(ends_s.get(before, 0.0), start_s + one.run_s)
    if len(extras) < LOADS_MIN or (load_s := median(extras)) < LOAD_S_MIN:
        return 0.0
    return load_s


def _cold(
    requests: Sequence[TrafficRequest], fits: dict[str, ServiceFit], load_s: float
) -> dict[int, float]:
    """Return who waited for a load, by place, and how long.

    What comes for a model while it loads waits for the rest of the load. Of the first run after a
    change that did not end well nothing can be told: it is taken for a load as well.
    """
    cold: dict[int, float] = {}
    for seen in _runs(requests).values():
        model, ready_s = "", 0.0
        for start_s, place in seen:
            one = requests[place]
            if one.model != model:
                loads = not one.is_whole or _beyond_s(one, fits) > load_s / 2
                model, ready_s = one.model, start_s + load_s if loads else start_s
            if start_s < ready_s:
                cold[place] = ready_s - start_s
    return cold


def _maybe_cold(requests: Sequence[TrafficRequest]) -> set[int]:
    """Return the places of those that began before their node had answered with their model.

    Only of the others it is certain that they did not wait for a load.
    """
    found: set[int] = set()
    for seen in _runs(requests).values():
        model, ready_s = "", inf
        for start_s, place in seen:
            one = requests[place]
            if one.model != model:
                model, ready_s = one.model, inf
            if start_s < ready_s:
                found.add(place)
                if one.is_whole:
                    ready_s = min(ready_s, start_s + (one.first_byte_s or one.run_s))
    return found


def _well_known(requests: Sequence[TrafficRequest], but: Container[int]) -> set[str]:
    """Return the models of which enough requests ran for a fit, but for those at some places.

    If there is none, a few requests have to do.
    """
    runs = Counter(
        one.model for place, one in enumerate(requests) if one.is_whole and place not in but
    )
    least = POINTS_MIN if max(runs.values(), default=0) >= POINTS_MIN else WARM_RUNS_MIN
    return {model for model, count in runs.items() if count >= least}


def _less_loads(
    requests: Sequence[TrafficRequest], cold: dict[int, float]
) -> tuple[list[TrafficRequest], set[int]]:
    """Return the requests as if no load had been waited for, and the places of those to leave out.

    What is left of a run after a load is less exact than a run without: it counts only where its
    model has few others.
    """
    known = _well_known(requests, cold)
    kept = list(requests)
    but: set[int] = set()
    for place, load_s in cold.items():
        one = requests[place]
        if one.model in known or one.run_s <= load_s:
            but.add(place)
        else:
            first_s = max(0.0, one.first_byte_s - load_s)
            kept[place] = replace(one, first_byte_s=first_s, run_s=one.run_s - load_s)
    return kept, but


def _runs(requests: Sequence[TrafficRequest]) -> dict[str, list[tuple[float, int]]]:
    """Return when each request of a node began to run, and its place, in that order."""
    runs: dict[str, list[tuple[float, int]]] = {}
    for place, one in enumerate(requests):
        if one.run_s:
            runs.setdefault(one.node, []).append((one.at_s + one.waited_s, place))
    for seen in runs.values():
        seen.sort()
    return runs


def _beyond_s(one: TrafficRequest, fits: dict[str, ServiceFit]) -> float:
    """Return by how much longer than usual a run took, to its first byte if that is known."""
    expected = fits[one.model]
    if one.stream and one.first_byte_s:
        return one.first_byte_s - expected.head_s(one.prompt_tokens)
    return one.run_s - expected.of(one.prompt_tokens, one.output_tokens)
