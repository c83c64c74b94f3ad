"""`forebay sim`, from what was typed to what is reported."""

from __future__ import annotations

import gc
import shlex
from pathlib import Path
from typing import Any

import typer
from msgspec import Struct
from msgspec.structs import replace

from forebay import __version__
from forebay.cli.exits import BROKEN_LIMIT, INTERRUPTED, USAGE
from forebay.cli.output.console import check_config, complain, fail, say, tell
from forebay.cli.sim.report import report
from forebay.load.limits import Limit, broken_limits, parse_limit
from forebay.load.plan import parse_mix
from forebay.load.quantities import BadPlan
from forebay.planning.document import SimDocument, SimSource, SimVariant, encode
from forebay.planning.fitting import Fits, fit_all, with_service_times
from forebay.planning.fleet import parse_nodes, recorded_nodes
from forebay.planning.replay import ReplayPlan, replay
from forebay.planning.summary import (
    SIM_METRICS,
    replay_series,
    summarise_recorded,
    summarise_replay,
)
from forebay.planning.traffic import Traffic, read_traffic, scaled, with_users
from forebay.settings import SettingsError, load_settings

VARIANTS_MAX = 20
FACTOR_MAX = 1000.0
BASE = "base"


class Changes(Struct, frozen=True):
    """What a variant is asked to be; the base, or what `--variant` changes of it."""

    name: str = BASE
    nodes: str | None = None
    settings: tuple[str, ...] = ()
    scale: float = 1.0
    speed: float = 1.0
    load_s: float | None = None


class Stage(Struct, frozen=True):
    """What all variants share."""

    traffic: Traffic
    fits: Fits
    config: Path | None
    seed: int


def start(given: dict[str, Any]) -> None:
    """Replay what was typed, report, and exit as the result demands."""
    check_config(given["config"])
    try:
        asked = _asked(given)
        traffic = read_traffic(given["from_"])
        if given["users"] is not None:
            mix = parse_mix(given["users"], "--users", "user-")
            traffic = with_users(traffic, mix, given["seed"])
        fits = fit_all(traffic.requests, asked[0].load_s or 0.0)
        traffic = with_service_times(traffic, fits, given["seed"])
        stage = Stage(traffic, fits, given["config"], given["seed"])
        limits = _limits(given["fail_if"] or [], traffic)
        plans = [_plan(changes, stage) for changes in asked]  # all are right before one is run
        variants = []
        for changes, plan in zip(asked, plans, strict=True):
            variants.append(_replay(changes, plan, stage))
    except BadPlan as bad:
        fail(str(bad), code=USAGE)
    except SettingsError as error:
        fail(str(error), code=USAGE)
    except KeyboardInterrupt:
        say("\nInterrupted.")
        raise typer.Exit(INTERRUPTED) from None
    made = SimDocument(
        forebay=__version__,
        source=_source(given["from_"], stage),
        recorded=summarise_recorded(traffic.recorded) if traffic.recorded else None,
        variants=variants,
    )
    if given["as_json"]:
        tell(encode(made))
    else:
        report(made)
    _exit(made, limits)


def _asked(given: dict[str, Any]) -> list[Changes]:
    """Return the base and the variants of it; raises BadPlan."""
    base = Changes(
        nodes=given["nodes"],
        settings=tuple(given["set_"] or ()),
        scale=_factor(given["scale"], "--scale"),
        speed=_factor(given["speed"], "--speed"),
        load_s=_load_s(given["load_seconds"]),
    )
    texts = given["variant"] or []
    if len(texts) > VARIANTS_MAX:
        raise BadPlan(f"--variant: at most {VARIANTS_MAX}.")
    return [base, *(_variant(base, text) for text in texts)]


def _variant(base: Changes, text: str) -> Changes:
    """Read `nodes=4xgpu:8 scale=2 queue.fairness=fifo`; raises BadPlan."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadPlan(f"--variant {text!r}: {error}.") from None
    made = replace(base, name=text)
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise BadPlan(f"--variant {text!r}: {word!r} changes nothing. Write nodes=4xgpu:8.")
        if key == "nodes":
            made = replace(made, nodes=value)
        elif key in ("scale", "speed"):
            made = replace(made, **{key: _factor(value, key)})
        elif key == "load_seconds":
            made = replace(made, load_s=_load_s(value))
        else:
            made = replace(made, settings=(*made.settings, word))
    if made == replace(base, name=text):
        raise BadPlan(f"--variant {text!r} equals the base. Write what differs: nodes=4xgpu:8.")
    return made


def _factor(given: float | str, option: str) -> float:
    value = _number(given)
    if not 1 / FACTOR_MAX <= value <= FACTOR_MAX:
        raise BadPlan(f"{option} {given}: a number from {1 / FACTOR_MAX} to {FACTOR_MAX:g}.")
    return value


def _load_s(given: float | str | None) -> float | None:
    if given is None:
        return None
    value = _number(given)
    if not 0 <= value <= 86_400:
        raise BadPlan(f"--load-seconds {given}: a number from 0 to 86400.")
    return value


def _number(given: float | str) -> float:
    try:
        return float(given)
    except ValueError:
        return float("nan")


def _limits(texts: list[str], traffic: Traffic) -> list[Limit]:
    names = {request.user for request in traffic.requests}
    names |= {request.priority for request in traffic.requests}
    return [parse_limit(text, names, SIM_METRICS) for text in texts]


def _plan(changes: Changes, stage: Stage) -> ReplayPlan:
    """Turn what was asked into what is replayed on; raises BadPlan and SettingsError."""
    for text in changes.settings:
        if not text.strip().startswith("queue."):
            raise BadPlan(f"{text}: a replay has no such setting. Only those of queue.* change it.")
    settings = load_settings(stage.config, changes.settings)
    if changes.nodes is not None:
        nodes = parse_nodes(changes.nodes, stage.traffic, stage.fits)
    else:
        slots = {node.name: node.slots for node in settings.nodes if node.slots != "auto"}
        nodes = recorded_nodes(stage.traffic, stage.fits, slots)
    load_s = stage.fits.load_s if changes.load_s is None else changes.load_s
    return ReplayPlan(nodes, settings.queue.options(), load_s, changes.speed)


def _replay(changes: Changes, plan: ReplayPlan, stage: Stage) -> SimVariant:
    requests = scaled(stage.traffic, changes.scale, stage.seed)
    say(f"Replaying {len(requests):,} requests: {changes.name}.")
    gc.freeze()  # what is there stays: collections then look at the replay's own only
    try:
        replayed = replay(requests, plan)
    finally:
        gc.unfreeze()
    return SimVariant(
        name=changes.name,
        nodes=plan.nodes,
        settings=list(changes.settings),
        scale=changes.scale,
        speed=plan.speed,
        load_s=plan.load_s,
        summary=summarise_replay(replayed, plan.nodes),
        series=replay_series(replayed),
    )


def _source(path: Path, stage: Stage) -> SimSource:
    traffic = stage.traffic
    return SimSource(
        str(path), traffic.source, len(traffic.requests), traffic.skipped, traffic.span_s,
        stage.fits.models,
    )  # fmt: skip


def _exit(made: SimDocument, limits: list[Limit]) -> None:
    """Say which limits do not hold, and exit accordingly."""
    is_broken = False
    for variant in made.variants:
        for one in broken_limits(limits, variant.summary):
            is_broken = True
            complain(f"{variant.name}: --fail-if {one}.")
    if is_broken:
        raise typer.Exit(BROKEN_LIMIT)
