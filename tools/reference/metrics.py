"""The reference page of every metric, made from the families that `metrics.py` draws."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from forebay.clock import SystemClock
from forebay.coordination import FleetPicture
from forebay.core import Observed, Scheduler, Snapshot
from forebay.dashboard.observer import QueueObservation
from forebay.gateway.holdings import Holdings
from forebay.gateway.hot.accounting import BUCKETS_S, Accounting
from forebay.gateway.hot.ended_stream import EndedStream
from forebay.gateway.jobs.service import JobFigures
from forebay.gateway.metrics import OF_THE_FLEET, Metrics
from forebay.gateway.records.service import RecordService
from forebay.nodes.registry import Nodes
from forebay.sessions.deps import SessionFigures
from forebay.settings import UsageSettings

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from forebay.clock import Timers
    from forebay.gateway.records.history_writer import HistoryWriter

PAGE: Final = Path("docs/reference/metrics.md")

OPENING: Final = """\
# Metrics

<!-- Made from src/forebay/gateway/metrics.py by `make reference`; change the words there, not this
page. -->

`GET /metrics` answers in Prometheus' text format. With keys it needs one, unless
`server.public_status = true`. Labels are bounded: no user, no key, no id, no free text. A dashboard
and alerts that are made of these: [operations](../operations.md#metrics).
"""

FLEET: Final = """\
## Several gateways, one queue

Where gateways share a queue (`coordination.url`), those of the *fleet* are about all of it, and
every gateway tells the same: take `max` over `instance`, never `sum`. Those of a *gateway* are what
it has done itself: add them up. To keep fleets apart, give each a `job` of its own in Prometheus:
`sum by (priority) (max by (job, priority) (forebay_queue_depth))`. `forebay_node_up` is what each
gateway finds when it asks the node: `min` is the doubtful one's view, `max` the luckier one's.

Those about replicas, the fleet and outages of the store are there in a fleet only.
Counters of the fleet are counted by its leader; a new one goes on from what the last one said.
While a gateway has no leader (`forebay_fleet_mode`) it leaves them out, and its gauges are about
itself alone.
"""

LABELS: Final = {
    "priority": "the class: `high`, `normal`, `low`, or what `queue.priorities` names",
    "outcome": "`served`; `passed_through` (a 4xx or 5xx of the node); `cancelled` (the client "
    "left); else the [error code](errors.md). Of prompts: `completed`, or the code",
    "reason": "an [error code](errors.md)",
    "route": "the path asked for; `other` where it could not be read",
    "kind": "of tokens: `prompt`, `output`; of failures: `connect`, `lost`, `status`, `garbage`, "
    "`too_large`, `refused`, `missing`, `removed` and the timeouts; of what was deleted: `job`, "
    "`batch`, `file`, `usage` (of a key, user and model in an hour), `record` (an ended request, "
    "or a minute of the page's series)",
    "node": "the node's name",
    "key": "the name of a key, of the settings or made at run time",
    "side": "of connections: `client`, `node`",
    "backend": "the node's name, in the metric that Nexus had",
    "type": "the task type of a job; `other` beyond the first 64",
    "state": "of a gateway: `leading`, `following`, `lost`",
    "mode": "`coordinated` (a leader decides for all), `seeking` (there is none yet), `alone` (the "
    "store is out of reach, for all as far as is known), `cut_off` (for this gateway only)",
    "what": "`settings` or `version`",
    "status": "`queued`, `running`, `completed`, `failed`, `cancelled`",
}
"""What each label says; a label that is not here cannot be drawn."""


class Described(NamedTuple):
    """One metric, as the page shows it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def of(self) -> str:
        """Of whom it tells, in a fleet."""
        return "fleet" if self.name in OF_THE_FLEET else "gateway"

    @property
    def series(self) -> set[str]:
        """The names that its samples have."""
        suffixes = ("_bucket", "_sum", "_count") if self.kind == "histogram" else ("",)
        return {self.name + suffix for suffix in suffixes}


def described() -> list[Described]:
    """Return every metric there is, as an idle gateway draws them."""
    clock = SystemClock()
    timers = cast("Timers", clock)  # nothing arms one
    nodes = Nodes(lambda _: None, timers)
    accounting = Accounting(clock.monotonic_s, EndedStream(timers))
    (snapshot,) = Scheduler().handle(Observed(), 0.0)
    assert isinstance(snapshot, Snapshot)
    no_history = cast("HistoryWriter", None)  # nothing is written
    records = RecordService(
        "", UsageSettings(), timers, no_history, set_names=tuple, wants_today=lambda: False
    )
    metrics = Metrics(accounting, nodes, JobFigures(timers), SessionFigures(), records)
    fleet = FleetPicture("coordinated", 1, "", ())
    return [
        _described(family)
        for family in metrics.families(QueueObservation(snapshot), 0, Holdings(), fleet)
    ]


def _described(family: Metric) -> Described:
    name = family.name + ("_total" if family.type == "counter" else "")
    labels: tuple[str, ...] = family._labelnames  # type: ignore[attr-defined]  # of every kind of it
    return Described(name, family.type, tuple(labels), family.documentation)


def page() -> str:
    """Return what the generated page should hold."""
    metrics = described()
    rows = [
        f"| `{one.name}` | {one.kind} | {one.of} | {', '.join(f'`{it}`' for it in one.labels)} "
        f"| {one.meaning} |"
        for one in metrics
    ]
    used = {label for metric in metrics for label in metric.labels}
    meanings = [f"| `{label}` | {words} |" for label, words in LABELS.items() if label in used]
    missing = used - LABELS.keys()
    assert not missing, f"LABELS says nothing of {missing}"
    bounds = ", ".join(f"{bound:g}" for bound in BUCKETS_S)
    return "\n".join([
        OPENING,
        "| Metric | Kind | Of | Labels | Meaning |", "| --- | --- | --- | --- | --- |", *rows,
        "", *FLEET.splitlines(),
        "", "## Labels", "", "| Label | Says |", "| --- | --- |", *meanings,
        "", "## Buckets", "",
        "A histogram `x` has the series `x_bucket` (with `le`), `x_sum` and `x_count`. Its buckets",
        f"end at {bounds}", "and infinitely many seconds.", "",
    ])  # fmt: skip
