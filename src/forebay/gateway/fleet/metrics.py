"""The metrics of a fleet: its gateways, its leader, and how this one is with the shared store."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from forebay.coordination.protocol.fleet import Mode, ReplicaState
from forebay.dashboard.fleet import draw_fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from forebay.coordination import FleetPicture
    from forebay.dashboard.picture import ReplicaPicture

MODES: tuple[str, ...] = get_args(Mode)
STATES: tuple[str, ...] = get_args(ReplicaState)


def fleet_families(fleet: FleetPicture, age_s: float | None) -> Iterator[Metric]:
    """Draw a fleet as this gateway knows it."""
    replicas = GaugeMetricFamily(
        "forebay_replicas",
        "Gateways that share the queue; `lost` for a while after one has vanished.",
        labels=["state"],
    )
    drawn = draw_fleet(fleet).replicas
    counted = Counter(replica.state for replica in drawn)
    for state in STATES:
        replicas.add_metric([state], counted[state])
    yield replicas
    yield _differing(drawn, fleet.me)
    mode = GaugeMetricFamily(
        "forebay_fleet_mode", "1 for the mode that this gateway is in.", labels=["mode"]
    )
    for name in MODES:
        mode.add_metric([name], float(name == fleet.mode))
    yield mode
    yield GaugeMetricFamily(
        "forebay_fleet_epoch", "How many leaders there have been.", value=fleet.epoch
    )
    age = GaugeMetricFamily(
        "forebay_fleet_counted_seconds_ago",
        "How old the figures of the fleet are here; 0 while the leader answers in time.",
        labels=[],
    )
    if age_s is not None:
        age.add_metric([], age_s)
    yield age
    yield CounterMetricFamily(
        "forebay_fleet_failovers_total",
        "Changes of leader that this gateway has seen.",
        value=fleet.failovers,
    )
    yield CounterMetricFamily(
        "forebay_store_outages_total",
        "Times that this gateway lost the shared store.",
        value=fleet.outages,
    )


def _differing(drawn: list[ReplicaPicture], me: str) -> GaugeMetricFamily:
    alive = [one for one in drawn if one.state != "lost"]
    here = next((one.version for one in alive if one.name == me), None)
    family = GaugeMetricFamily(
        "forebay_replicas_differing",
        "Gateways of the fleet whose settings or version are not this one's.",
        labels=["what"],
    )
    family.add_metric(["settings"], sum(not one.same_settings for one in alive))
    family.add_metric(["version"], sum(here is not None and one.version != here for one in alive))
    return family
