"""`/metrics`: the counters in Prometheus' text format; labels are routes, codes, classes, nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest

from forebay.gateway.fleet.metrics import fleet_families
from forebay.gateway.hot.accounting import BUCKETS_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from forebay.coordination import FleetPicture
    from forebay.core import Snapshot
    from forebay.core.snapshot import Totals
    from forebay.dashboard.lookout import Look
    from forebay.gateway.holdings import Holdings
    from forebay.gateway.hot.accounting import Accounting, Histogram
    from forebay.gateway.jobs.figures import JobFigures
    from forebay.nodes.registry import Nodes
    from forebay.sessions.deps import SessionFigures

    Labelled = tuple[tuple[str, ...], Histogram]

OF_THE_FLEET = frozenset(
    {
        "forebay_queue_depth", "nexus_queue_depth", "forebay_queue_max_size",
        "forebay_queue_enqueued_total", "forebay_queue_rejected_total",
        "forebay_queue_timeouts_total", "forebay_queue_cancelled_total",
        "forebay_model_swaps_total", "forebay_node_in_flight", "nexus_backend_pending_requests",
        "forebay_node_slots", "forebay_node_up", "forebay_jobs", "forebay_replicas",
        "forebay_replicas_differing", "forebay_fleet_epoch", "forebay_fleet_failovers_total",
    }
)  # fmt: skip
"""Metrics that every gateway of a fleet tells of the whole: adding them up over gateways would
count everything several times."""


class Metrics:
    """Draws the metrics from plain integers when someone asks for them."""

    def __init__(
        self,
        accounting: Accounting,
        nodes: Nodes,
        jobs: JobFigures,
        sessions: SessionFigures,
    ) -> None:
        self._accounting = accounting
        self._nodes = nodes
        self._jobs = jobs
        self._sessions = sessions

    def text(
        self, look: Look, retries: int, held: Holdings, fleet: FleetPicture | None = None
    ) -> bytes:
        """Return all metrics in the text format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected(self.families(look, retries, held, fleet)))
        return generate_latest(registry)

    def families(
        self, look: Look, retries: int, held: Holdings, fleet: FleetPicture | None
    ) -> list[Metric]:
        """Return all metrics there are, those without a sample included."""
        snapshot = look.snapshot
        # What a leader has counted must not seem to fall, and then to leap, while there is none.
        totals = snapshot.totals if fleet is None or fleet.mode == "coordinated" else None
        return [*self._queue(snapshot), *_queue_totals(totals), *self._traffic(retries),
                *self._of_nodes(snapshot), *self._of_jobs(), *self._of_sessions(),
                *_of_itself(held),
                *(fleet_families(fleet, look.age_s) if fleet else ())]  # fmt: skip

    def _queue(self, snapshot: Snapshot) -> Iterator[Metric]:
        depth = GaugeMetricFamily(
            "forebay_queue_depth", "Requests waiting now.", labels=["priority"]
        )
        for priority, waiting in snapshot.by_priority.items():
            depth.add_metric([priority], waiting)
        yield depth
        yield _gauge(
            "nexus_queue_depth",
            "Requests waiting now, in all; the name that Nexus used.",
            snapshot.waiting,
        )
        yield _gauge(
            "forebay_queue_max_size", "Requests that may wait (queue.max_size).", snapshot.max_size
        )
        yield _histogram(
            "forebay_queue_wait_seconds",
            "Time spent waiting, with the zeros of those that did not.",
            ["priority", "outcome"],
            self._accounting.waits.items(),
        )

    def _traffic(self, retries: int) -> Iterator[Metric]:
        counts = self._accounting
        requests = CounterMetricFamily(
            "forebay_requests_total",
            "Requests at their end; outcomes as in the access log.",
            labels=["route", "outcome"],
        )
        for labels, count in counts.requests.items():
            requests.add_metric(list(labels), count)
        yield requests
        for name, what, histogram in (
            ("forebay_first_byte_seconds", "From the node's start to its first byte.",
             counts.first_bytes),
            ("forebay_request_seconds", "Time spent running on a node.", counts.runs),
            ("forebay_estimate_error_seconds", "How far the promised wait was off.",
             counts.estimate_errors),
        ):  # fmt: skip
            yield _histogram(name, what, [], [((), histogram)])
        tokens = CounterMetricFamily(
            "forebay_tokens_total",
            "Tokens, as the nodes count them, else estimated.",
            labels=["kind"],
        )
        tokens.add_metric(["prompt"], counts.prompt_tokens)
        tokens.add_metric(["output"], counts.output_tokens)
        yield tokens
        yield _counter(
            "forebay_retries_total", "Attempts beyond the first, after failures.", retries
        )

    def _of_nodes(self, snapshot: Snapshot) -> Iterator[Metric]:
        in_flight = _per_node("forebay_node_in_flight", "Requests running on the node.")
        pending = GaugeMetricFamily(
            "nexus_backend_pending_requests",
            "Requests running on the node; the name that Nexus used.",
            labels=["backend"],
        )
        slots = _per_node("forebay_node_slots", "Requests that may run there at once.")
        up = _per_node(
            "forebay_node_up",
            "1 while this gateway finds it online; 0 offline, loading or draining.",
        )
        for node in snapshot.nodes:
            in_flight.add_metric([node.name], node.in_flight)
            pending.add_metric([node.name], node.in_flight)
            slots.add_metric([node.name], node.slots)
        for backend in self._nodes:
            up.add_metric([backend.name], float(backend.told.state == "online"))
        yield from (in_flight, pending, slots, up)
        failures = CounterMetricFamily(
            "forebay_node_failures_total",
            "Requests that failed there, by what happened.",
            labels=["node", "kind"],
        )
        for backend in self._nodes:
            for kind, count in backend.failures.items():
                failures.add_metric([backend.name, kind], count)
        yield failures

    def _of_jobs(self) -> Iterator[Metric]:
        jobs = GaugeMetricFamily(
            "forebay_jobs", "Jobs in the store, by type and status.", labels=["type", "status"]
        )
        for (task_type, status), count in self._jobs.by_status.items():
            jobs.add_metric([task_type, status], count)
        yield jobs
        yield _histogram(
            "forebay_job_wait_seconds",
            "Time that jobs were queued before they started.",
            ["type"],
            self._jobs.waits.items(),
        )
        yield _gauge(
            "forebay_vram_reserved_bytes",
            "GPU memory that running task types have reserved.",
            self._jobs.vram_reserved_gb() * 2**30,
        )

    def _of_sessions(self) -> Iterator[Metric]:
        figures = self._sessions
        yield _gauge("forebay_sessions", "Sessions held.", figures.held())
        yield _gauge(
            "forebay_sessions_pending_prompts",
            "Prompts pending in all sessions, the running ones included.",
            figures.pending(),
        )
        ended = CounterMetricFamily(
            "forebay_session_prompts_total",
            "Prompts that ended: completed, or an error code.",
            labels=["outcome"],
        )
        for outcome, count in figures.outcomes.items():
            ended.add_metric([outcome], count)
        yield ended


def _queue_totals(totals: Totals | None) -> Iterator[Metric]:
    """Draw what the scheduler has counted; without a sample where nobody has."""
    for name, what, field in (
        ("enqueued", "Requests that had to wait.", "enqueued"),
        ("timeouts", "Requests that waited too long.", "expired"),
        ("cancelled", "Requests given up by their clients, or cancelled.", "cancelled"),
    ):
        count = None if totals is None else getattr(totals, field)
        yield CounterMetricFamily(f"forebay_queue_{name}_total", what, value=count)
    rejected = CounterMetricFamily(
        "forebay_queue_rejected_total",
        "Requests that the scheduler refused, by code.",
        labels=["reason"],
    )
    for reason, count in totals.rejected.items() if totals else ():
        rejected.add_metric([reason], count)
    yield rejected
    yield CounterMetricFamily(
        "forebay_model_swaps_total",
        "Model loads caused by dispatching.",
        value=None if totals is None else totals.swaps,
    )


def _of_itself(held: Holdings) -> Iterator[Metric]:
    """Draw what this gateway holds; without a request, no lease and no body."""
    yield _gauge("forebay_leases", "Slots of nodes that this gateway holds now.", held.leases)
    yield _counter(
        "forebay_leases_orphaned_total",
        "Leases that the watchdog found without a request, or requests without their lease; "
        "given back. Anything but 0 is a bug.",
        held.orphaned,
    )
    connections = GaugeMetricFamily(
        "forebay_connections", "Connections open now, the idle ones included.", labels=["side"]
    )
    connections.add_metric(["client"], held.client_connections)
    connections.add_metric(["node"], held.node_connections)
    yield connections
    yield _gauge(
        "forebay_body_bytes", "Bytes of request bodies that are counted now.", held.body_bytes
    )
    yield _gauge("forebay_tasks", "Tasks of the event loop, this answer's included.", held.tasks)


class _Collected:
    """A collector of what has been drawn already."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _gauge(name: str, what: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, what, value=value)


def _counter(name: str, what: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, what, value=value)


def _per_node(name: str, what: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, what, labels=["node"])


def _histogram(
    name: str, what: str, labels: list[str], histograms: Iterable[Labelled]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, what, labels=labels)
    for values, histogram in histograms:
        seen = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*BUCKETS_S, float("inf")), histogram.counts, strict=True):
            seen += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), seen))
        family.add_metric(list(values), buckets, histogram.total)
    return family
