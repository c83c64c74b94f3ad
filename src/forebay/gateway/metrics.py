"""`/metrics`: the counters in Prometheus' text format; labels are routes, codes, classes, nodes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from forebay.coordination.protocol.fleet import Mode, ReplicaState
from forebay.dashboard.fleet import fleet_snapshot
from forebay.gateway.hot.accounting import BUCKETS_S
from forebay.gateway.logs import lines_dropped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from forebay.coordination import FleetPicture
    from forebay.core import Snapshot
    from forebay.core.snapshot import Totals
    from forebay.dashboard.observer import QueueObservation
    from forebay.gateway.holdings import Holdings
    from forebay.gateway.hot.accounting import Accounting, Histogram
    from forebay.gateway.jobs.service import JobFigures
    from forebay.gateway.records.service import RecordService
    from forebay.nodes.registry import Nodes
    from forebay.sessions.deps import SessionFigures

    Samples: TypeAlias = Mapping[Any, float]
    """By the value of the one label, or a tuple of the values of all labels."""

SUFFIXES: Final = ("", "_total", "_bucket", "_sum", "_count")
"""What the names of a family's samples end with."""
SEPARATOR: Final = "\x1f"
MODES: tuple[str, ...] = get_args(Mode)
STATES: tuple[str, ...] = get_args(ReplicaState)
DELETED: Final = ("job", "batch", "file", "usage", "record")
"""Kinds of rows that retention deletes."""
OF_THE_FLEET = frozenset(
    {
        "forebay_queue_depth", "nexus_queue_depth", "forebay_queue_max_size",
        "forebay_queue_enqueued_total", "forebay_queue_rejected_total",
        "forebay_queue_timeouts_total", "forebay_queue_cancelled_total",
        "forebay_model_swaps_total", "forebay_rate_waits_total", "forebay_prefix_tokens_total",
        "forebay_prefix_hit_tokens_total", "forebay_prefix_saved_seconds_total",
        "forebay_node_in_flight", "nexus_backend_pending_requests",
        "forebay_node_slots", "forebay_node_up", "forebay_node_kv_free_tokens",
        "forebay_jobs", "forebay_replicas",
        "forebay_replicas_differing", "forebay_fleet_epoch", "forebay_fleet_failovers_total",
    }
)  # fmt: skip
"""Metrics that every gateway reports for the whole fleet: summed over gateways they would count
everything several times."""


class Metrics:
    """Makes the metrics from plain integers when they are asked for."""

    def __init__(
        self,
        accounting: Accounting,
        nodes: Nodes,
        jobs: JobFigures,
        sessions: SessionFigures,
        records: RecordService,
    ) -> None:
        self._accounting = accounting
        self._nodes = nodes
        self._jobs = jobs
        self._sessions = sessions
        self._records = records

    def text(
        self,
        look: QueueObservation,
        retries: int,
        held: Holdings,
        fleet: FleetPicture | None = None,
        others: Mapping[str, float] | None = None,
    ) -> bytes:
        """Return all metrics in the text format; `others` is what other workers have counted."""
        families = self.families(look, retries, held, fleet)
        if others:
            add_samples(families, others)
        return generate_latest(_Collected(families))

    def samples(self, retries: int, held: Holdings) -> tuple[dict[str, float], dict[str, float]]:
        """Return what only this process counts, by sample: counters, and gauges."""
        counters: dict[str, float] = {}
        gauges: dict[str, float] = {}
        for family in (
            self._waits(), *self._traffic(retries), self._failures(), *self._of_records(),
            *_of_resources(held),
        ):  # fmt: skip
            kind = gauges if family.type == "gauge" else counters
            for sample in family.samples:
                kind[_key(sample)] = sample.value
        return counters, gauges

    def families(
        self, look: QueueObservation, retries: int, held: Holdings, fleet: FleetPicture | None
    ) -> list[Metric]:
        """Return all metrics there are, those without a sample included."""
        snapshot = look.snapshot
        # Counters of the leader must not seem to fall, and then to leap, while there is none.
        totals = snapshot.totals if fleet is None or fleet.mode == "coordinated" else None
        return [*self._queue(snapshot), *_queue_totals(totals), *self._traffic(retries),
                *self._of_nodes(snapshot), *self._of_jobs(), *self._of_sessions(),
                *self._of_records(), *_of_resources(held),
                *(_of_fleet(fleet, look.age_s) if fleet else ())]  # fmt: skip

    def _queue(self, snapshot: Snapshot) -> Iterator[Metric]:
        yield _gauges(
            "forebay_queue_depth", "Requests waiting now.", "priority", snapshot.by_priority
        )
        yield _gauge(
            "nexus_queue_depth",
            "Requests waiting now, in all; the name that Nexus used.",
            snapshot.waiting,
        )
        yield _gauge(
            "forebay_queue_max_size", "Requests that may wait (queue.max_size).", snapshot.max_size
        )
        yield self._waits()

    def _waits(self) -> Metric:
        return _histograms(
            "forebay_queue_wait_seconds",
            "Time spent waiting; 0 for requests that did not wait.",
            "priority outcome",
            self._accounting.waits.items(),
        )

    def _traffic(self, retries: int) -> Iterator[Metric]:
        counts = self._accounting
        yield _counters(
            "forebay_requests_total",
            "Requests at their end; outcomes as in the access log.",
            "route outcome",
            counts.requests,
        )
        for name, what, histogram in (
            ("forebay_first_byte_seconds", "From the node's start to its first byte.",
             counts.first_bytes),
            ("forebay_request_seconds", "Time spent running on a node.", counts.runs),
            ("forebay_estimate_error_seconds", "Error of the estimated wait.",
             counts.estimate_errors),
        ):  # fmt: skip
            yield _histograms(name, what, "", [((), histogram)])
        yield _counters(
            "forebay_tokens_total",
            "Tokens, as the nodes count them, else estimated.",
            "kind",
            {"prompt": counts.prompt_tokens, "output": counts.output_tokens},
        )
        yield _counter(
            "forebay_retries_total", "Attempts beyond the first, after failures.", retries
        )

    def _of_nodes(self, snapshot: Snapshot) -> Iterator[Metric]:
        in_flight = {node.name: node.in_flight for node in snapshot.nodes}
        yield _gauges("forebay_node_in_flight", "Requests running on the node.", "node", in_flight)
        yield _gauges(
            "nexus_backend_pending_requests",
            "Requests running on the node; the name that Nexus used.",
            "backend",
            in_flight,
        )
        yield _gauges(
            "forebay_node_slots",
            "Requests that may run there at once.",
            "node",
            {node.name: node.slots for node in snapshot.nodes},
        )
        yield _counters(
            "forebay_node_slots_changes_total",
            "How often this gateway changed the number of slots it found by trying.",
            "node",
            {one.name: one.slots_changes for one in self._nodes if one.settings.slots == "auto"},
        )
        yield _gauges(
            "forebay_node_up",
            "1 while this gateway finds it online; 0 offline, loading or draining.",
            "node",
            {backend.name: float(backend.told.state == "online") for backend in self._nodes},
        )
        rooms = {backend.name: backend.kv_free_tokens for backend in self._nodes}
        yield _gauges(
            "forebay_node_kv_free_tokens",
            "Tokens that its key-value cache has room for; only where its guard says so.",
            "node",
            {name: room for name, room in rooms.items() if room is not None},
        )
        yield self._failures()

    def _failures(self) -> Metric:
        return _counters(
            "forebay_node_failures_total",
            "Requests that failed there, by what happened.",
            "node kind",
            {
                (backend.name, kind): count
                for backend in self._nodes
                for kind, count in backend.failures.items()
            },
        )

    def _tokens_by_key(self) -> dict[tuple[str, str], int]:
        """Return the tokens of each name; a key that was made anew goes on with its name's."""
        sums: Counter[tuple[str, str]] = Counter()
        for (owner, kind), tokens in self._records.usage.tokens_by_key.items():
            sums[self._records.keys.names.get(owner, owner), kind] += tokens
        return sums

    def _of_records(self) -> Iterator[Metric]:
        yield _counters(
            "forebay_usage_tokens_total",
            "Tokens in and out by key, estimated where a node does not say; without keys none.",
            "key kind",
            self._tokens_by_key(),
        )
        counts = self._jobs.deleted + self._records.deleted
        yield _counters(
            "forebay_retention_deleted_total",
            "Rows that this gateway deleted because of their age.",
            "kind",
            {kind: counts[kind] for kind in DELETED},
        )
        yield _gauge(
            "forebay_records_failing",
            "1 while reading or writing the database of keys, usage and history fails.",
            float(self._records.is_failing()),
        )

    def _of_jobs(self) -> Iterator[Metric]:
        yield _gauges(
            "forebay_jobs",
            "Jobs in the store, by type and status.",
            "type status",
            self._jobs.by_status,
        )
        yield _histograms(
            "forebay_job_wait_seconds",
            "Time that jobs were queued before they started.",
            "type",
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
        yield _counters(
            "forebay_session_prompts_total",
            "Prompts that ended: completed, or an error code.",
            "outcome",
            figures.outcomes,
        )


def _queue_totals(totals: Totals | None) -> Iterator[Metric]:
    """Yield the counters of the scheduler; without a sample where there are none."""
    for name, what, field in (
        ("enqueued", "Requests that had to wait.", "enqueued"),
        ("timeouts", "Requests that timed out while waiting.", "expired"),
        ("cancelled", "Requests given up by their clients, or cancelled.", "cancelled"),
    ):
        count = None if totals is None else getattr(totals, field)
        yield _counter(f"forebay_queue_{name}_total", what, count)
    yield _counters(
        "forebay_queue_rejected_total",
        "Requests that the queue refused, by code; those without memory for their bodies too.",
        "reason",
        totals.rejected if totals is not None else {},
    )
    yield _counter(
        "forebay_model_swaps_total",
        "Model loads caused by dispatching.",
        None if totals is None else totals.swaps,
    )
    yield _counter(
        "forebay_rate_waits_total",
        "Requests that had to wait for the rate of their key.",
        None if totals is None else totals.rate_waits,
    )
    yield _counter(
        "forebay_prefix_tokens_total",
        "Approximate prompt tokens of requests that several nodes could serve.",
        None if totals is None else totals.prefix_tokens,
    )
    yield _counter(
        "forebay_prefix_hit_tokens_total",
        "Prompt tokens that were probably cached on the node that served them.",
        None if totals is None else totals.prefix_hit_tokens,
    )
    yield _counter(
        "forebay_prefix_saved_seconds_total",
        "Prompt processing time that the cached tokens saved, estimated.",
        None if totals is None else totals.prefix_saved_s,
    )


def _of_resources(held: Holdings) -> Iterator[Metric]:
    """Yield what this gateway holds; without a request, no lease and no body."""
    yield _gauge("forebay_leases", "Slots of nodes that this gateway holds now.", held.leases)
    yield _counter(
        "forebay_leases_orphaned_total",
        "Leases that the watchdog found without a request, or requests without a lease; "
        "released. Anything but 0 is a bug.",
        held.orphaned,
    )
    yield _gauges(
        "forebay_connections",
        "Connections open now, the idle ones included.",
        "side",
        {"client": held.client_connections, "node": held.node_connections},
    )
    yield _gauge(
        "forebay_body_bytes", "Bytes of request bodies that are counted now.", held.body_bytes
    )
    yield _gauge("forebay_tasks", "Tasks of the event loop, this answer's included.", held.tasks)
    yield _gauge("forebay_workers", "Processes that share the port and the queue.", 1)
    yield _counter(
        "forebay_log_lines_dropped_total",
        "Lines of the log and the access log that were dropped: nobody read them fast enough.",
        lines_dropped(),
    )


def _of_fleet(fleet: FleetPicture, age_s: float | None) -> Iterator[Metric]:
    """Yield the state of the fleet as this gateway knows it."""
    drawn = fleet_snapshot(fleet).replicas
    alive = [one for one in drawn if one.state != "lost"]
    here = next((one.version for one in alive if one.name == fleet.me), None)
    by_state = Counter(replica.state for replica in drawn)
    yield _gauges(
        "forebay_replicas",
        "Gateways that share the queue; `lost` for a while after one has disappeared.",
        "state",
        {state: by_state[state] for state in STATES},
    )
    yield _gauges(
        "forebay_replicas_differing",
        "Gateways of the fleet whose settings or version differ from this gateway's.",
        "what",
        {
            "settings": sum(not one.same_settings for one in alive),
            "version": sum(here is not None and one.version != here for one in alive),
        },
    )
    yield _gauges(
        "forebay_fleet_mode",
        "1 for the mode that this gateway is in.",
        "mode",
        {mode: float(mode == fleet.mode) for mode in MODES},
    )
    yield _gauge("forebay_fleet_epoch", "How many leaders there have been.", fleet.epoch)
    yield _gauge(
        "forebay_fleet_counted_seconds_ago",
        "Age of the fleet's figures at this gateway; 0 while the leader answers in time.",
        age_s,
    )
    yield _counter(
        "forebay_fleet_failovers_total",
        "Changes of leader that this gateway has seen.",
        fleet.failovers,
    )
    yield _counter(
        "forebay_store_outages_total",
        "Times that this gateway lost the shared store.",
        fleet.outages,
    )


def add_samples(families: Iterable[Metric], others: Mapping[str, float]) -> None:
    """Add what other processes have counted to samples of the same name and labels.

    >>> requests = _counters("requests", "Seen.", "route", {"/a": 2})
    >>> there = _counters("requests", "Seen.", "route", {"/a": 1, "/b": 5})
    >>> add_samples([requests], {_key(sample): sample.value for sample in there.samples})
    >>> [(sample.labels["route"], sample.value) for sample in requests.samples]
    [('/a', 3), ('/b', 5)]
    """
    remaining = dict(others)
    by_name: dict[str, Metric] = {}
    for family in families:
        for suffix in SUFFIXES:
            by_name[family.name + suffix] = family
        family.samples = [
            sample._replace(value=sample.value + remaining.pop(_key(sample), 0))
            for sample in family.samples
        ]
    for key, value in remaining.items():
        name, *labels = key.split(SEPARATOR)
        if name in by_name:
            pairs = zip(labels[::2], labels[1::2], strict=True)
            by_name[name].samples.append(Sample(name, dict(pairs), value))


def _key(sample: Sample) -> str:
    """Return the name and the labels of a sample as one text."""
    pairs = (text for pair in sample.labels.items() for text in pair)
    return SEPARATOR.join((sample.name, *pairs))


class _Collected(Collector):
    """A collector of metrics that exist already."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _gauge(name: str, what: str, value: float | None) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, what, value=value)


def _counter(name: str, what: str, value: float | None) -> CounterMetricFamily:
    return CounterMetricFamily(name, what, value=value)


def _gauges(name: str, what: str, labels: str, samples: Samples) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, what, labels=labels.split())
    for key, value in samples.items():
        family.add_metric([key] if isinstance(key, str) else key, value)
    return family


def _counters(name: str, what: str, labels: str, samples: Samples) -> CounterMetricFamily:
    family = CounterMetricFamily(name, what, labels=labels.split())
    for key, value in samples.items():
        family.add_metric([key] if isinstance(key, str) else key, value)
    return family


def _histograms(
    name: str, what: str, labels: str, samples: Iterable[tuple[tuple[str, ...], Histogram]]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, what, labels=labels.split())
    for values, histogram in samples:
        seen = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*BUCKETS_S, float("inf")), histogram.counts, strict=True):
            seen += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), seen))
        family.add_metric(values, buckets, histogram.total)
    return family
