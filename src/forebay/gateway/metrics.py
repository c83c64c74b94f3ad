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

from forebay.gateway.accounting import BUCKETS_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from forebay.core import Snapshot
    from forebay.gateway.accounting import Accounting, Histogram
    from forebay.gateway.job_figures import JobFigures
    from forebay.nodes.registry import Nodes
    from forebay.sessions.figures import SessionFigures

    Labelled = tuple[tuple[str, ...], Histogram]


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

    def text(self, snapshot: Snapshot, retries: int) -> bytes:
        """Return all metrics in the text format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected(self.families(snapshot, retries)))
        return generate_latest(registry)

    def families(self, snapshot: Snapshot, retries: int) -> list[Metric]:
        """Return all metrics there are, those without a sample included."""
        return [*self._queue(snapshot), *self._traffic(snapshot, retries),
                *self._of_nodes(snapshot), *self._of_jobs(), *self._of_sessions()]  # fmt: skip

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
        totals = snapshot.totals
        yield _counter(
            "forebay_queue_enqueued_total", "Requests that had to wait.", totals.enqueued
        )
        rejected = CounterMetricFamily(
            "forebay_queue_rejected_total",
            "Requests that the scheduler refused, by code.",
            labels=["reason"],
        )
        for reason, count in totals.rejected.items():
            rejected.add_metric([reason], count)
        yield rejected
        yield _counter(
            "forebay_queue_timeouts_total", "Requests that waited too long.", totals.expired
        )
        yield _counter(
            "forebay_queue_cancelled_total",
            "Requests given up by their clients, or cancelled.",
            totals.cancelled,
        )

    def _traffic(self, snapshot: Snapshot, retries: int) -> Iterator[Metric]:
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
        yield _counter("forebay_retries_total", "Attempts beyond the first.", retries)
        yield _counter(
            "forebay_model_swaps_total", "Model loads caused by dispatching.", snapshot.totals.swaps
        )

    def _of_nodes(self, snapshot: Snapshot) -> Iterator[Metric]:
        in_flight = _per_node("forebay_node_in_flight", "Requests running on the node.")
        pending = GaugeMetricFamily(
            "nexus_backend_pending_requests",
            "Requests running on the node; the name that Nexus used.",
            labels=["backend"],
        )
        slots = _per_node("forebay_node_slots", "Requests that may run there at once.")
        up = _per_node("forebay_node_up", "1 while it is online; 0 offline, loading or draining.")
        for node in snapshot.nodes:
            in_flight.add_metric([node.name], node.in_flight)
            pending.add_metric([node.name], node.in_flight)
            slots.add_metric([node.name], node.slots)
            up.add_metric([node.name], float(node.state == "online"))
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
        for (task_type, status), count in self._jobs.counts.by_status.items():
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
