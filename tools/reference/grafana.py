"""Write deploy/grafana/forebay.json: the dashboard, from the panels listed here.

`make reference` runs it. Edit this list, not the JSON: a panel is a title, a sentence that says how
to read it, a unit, and one query per line of the chart. Queries are written plainly; `_filtered`
adds the dashboard's choice of gateways to each metric.

What each gateway of a fleet tells of all of it is counted once (`of_fleet`), what it tells of
itself is added up: docs/reference/metrics.md says which is which; a test holds the queries to it.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGE = Path("deploy") / "grafana" / "forebay.json"
COLUMNS = 24
RANGE = "$__rate_interval"
SOURCE = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}


@dataclass(frozen=True)
class Panel:
    """One chart: what it is called, how to read it, and what it asks."""

    title: str
    description: str
    queries: dict[str, str]
    """By legend; `{{label}}` is filled in by Grafana."""
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    stacked: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    """More field options: thresholds, a maximum, mappings."""


def quantiles(metric: str, by: str = "", matchers: str = "") -> dict[str, str]:
    """Return p50, p95 and p99 of a histogram, the legend saying which."""
    groups = f"le, {by}" if by else "le"
    name = f" {{{{{by}}}}}" if by else ""
    rate = f"sum by ({groups}) (rate({metric}_bucket{matchers}[{RANGE}]))"
    return {f"p{share}{name}": f"histogram_quantile(0.{share}, {rate})" for share in (50, 95, 99)}


def per_second(metric: str, by: str) -> dict[str, str]:
    """Return how often something is counted, by a label or several."""
    legend = " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(","))
    return {legend: f"sum by ({by}) (rate({metric}[{RANGE}]))"}


def of_fleet(metric: str, by: str = "") -> str:
    """Return what every gateway of a fleet tells alike, once for each fleet, which is a job."""
    kept, shown = (f"job, {by}", f" by ({by})") if by else ("job", "")
    return f"sum{shown} (max by ({kept}) ({metric}))"


def steps(*pairs: tuple[str, float | None]) -> dict[str, Any]:
    """Return thresholds: a colour from each value on."""
    return {
        "thresholds": {
            "mode": "absolute",
            "steps": [{"color": color, "value": value} for color, value in pairs],
        }
    }


SHARE = {"min": 0, "max": 1}
GOOD_TO_BAD = steps(("green", None), ("orange", 0.5), ("red", 0.8))

ROWS: dict[str, list[Panel]] = {
    "Now": [
        Panel("Waiting", "Requests waiting now, in all classes.",
              {"waiting": "sum(max by (job, priority) (forebay_queue_depth))"},
              kind="stat", width=4, height=4),
        Panel("Queue used", "Share of queue.max_size in use; at 100 % new requests are refused.",
              {"used": "sum(max by (job, priority) (forebay_queue_depth))"
                       f" / {of_fleet('forebay_queue_max_size')}"},
              "percentunit", "gauge", 4, 4, options={**SHARE, **GOOD_TO_BAD}),
        Panel("Slots used", "Requests running, as a share of the slots of nodes that are up.",
              {"used": "sum(max by (job, node) (forebay_node_in_flight))"
                       " / sum(max by (job, node) (forebay_node_slots * forebay_node_up))"},
              "percentunit", "gauge", 4, 4, options=SHARE),
        Panel("Nodes up", "Nodes that can be used now.",
              {"up": "sum(max by (job, node) (forebay_node_up))"},
              kind="stat", width=4, height=4,
              options=steps(("red", None), ("green", 1))),
        Panel("Wait, p95", "95 % of the served requests waited less than this.",
              {"p95": quantiles("forebay_queue_wait_seconds",
                                matchers='{outcome="served"}')["p95"]},
              "s", "stat", 4, 4, options=steps(("green", None), ("orange", 10), ("red", 30))),
        Panel("Not served", "Share of requests that ended without an answer, except those "
              "that their clients cancelled.",
              {"not served": f'1 - sum(rate(forebay_requests_total{{outcome=~"served|passed_through'
               f'|cancelled"}}[{RANGE}])) / sum(rate(forebay_requests_total[{RANGE}]))'},
              "percentunit", "stat", 4, 4,
              options=steps(("green", None), ("orange", 0.01), ("red", 0.05))),
    ],
    "Queue": [
        Panel("Depth by priority", "Requests waiting; the dashed line is queue.max_size.",
              {"{{priority}}": of_fleet("forebay_queue_depth", "priority"),
               "max_size": of_fleet("forebay_queue_max_size")}, stacked=True),
        Panel("Waits", "Wait of served requests, including those that did not wait.",
              quantiles("forebay_queue_wait_seconds", matchers='{outcome="served"}'), "s"),
        Panel("Waits by priority, p95", "With strict priority, a lower class waits much longer; "
              "queue.priority and queue.aging_seconds change that.",
              {"{{priority}}": quantiles("forebay_queue_wait_seconds", "priority",
                                         '{outcome="served"}')["p95 {{priority}}"]}, "s"),
        Panel("Refused, by reason", "Refused requests per second; each reason is a code of "
              "docs/reference/errors.md.",
              {"{{reason}}": of_fleet(f"rate(forebay_queue_rejected_total[{RANGE}])", "reason")},
              "reqps", stacked=True),
        Panel("Queued, timed out, cancelled", "Requests per second that found no free slot, and "
              "those of them that never got one.",
              {"queued": of_fleet(f"rate(forebay_queue_enqueued_total[{RANGE}])"),
               "timed out": of_fleet(f"rate(forebay_queue_timeouts_total[{RANGE}])"),
               "cancelled": of_fleet(f"rate(forebay_queue_cancelled_total[{RANGE}])")}, "reqps"),
        Panel("Estimate error", "Error of the estimated wait, which clients plan by.",
              quantiles("forebay_estimate_error_seconds"), "s"),
    ],
    "Traffic": [
        Panel("Outcomes", "Requests at their end, per second: served, or the code of what went "
              "wrong.", per_second("forebay_requests_total", "outcome"), "reqps", stacked=True),
        Panel("Requests by route", "Requests at their end, per second.",
              per_second("forebay_requests_total", "route"), "reqps", stacked=True),
        Panel("Tokens", "Tokens per second, as the nodes count them.",
              per_second("forebay_tokens_total", "kind")),
        Panel("Tokens by key", "Tokens per second, in and out together, by key; empty without "
              "keys.", per_second("forebay_usage_tokens_total", "key"), stacked=True),
        Panel("First byte", "From the start on a node to its first byte: reading the prompt, "
              "and loading where the model was not in memory.",
              quantiles("forebay_first_byte_seconds"), "s", width=12),
        Panel("Running", "From the start on a node to the last byte.",
              quantiles("forebay_request_seconds"), "s", width=12),
    ],
    "Nodes": [
        Panel("Up", "Which nodes can be used. A drained node counts as not up, and so does one "
              "that only some gateways reach.",
              {"{{node}}": "min by (node) (forebay_node_up)"}, kind="state-timeline", width=12,
              options={**steps(("red", None), ("green", 1)),
                       "mappings": [{"type": "value", "options": {
                           "0": {"text": "not up", "index": 0},
                           "1": {"text": "up", "index": 1}}}]}),
        Panel("In flight and slots", "Requests running on each node; dashed, its slots.",
              {"{{node}}": "max by (node) (forebay_node_in_flight)",
               "{{node}} slots": "max by (node) (forebay_node_slots)"}, width=12),
        Panel("Free cache", "Tokens that the key-value cache of a node has room for; empty "
              "where no guard says so.",
              {"{{node}}": "max by (node) (forebay_node_kv_free_tokens)"}),
        Panel("Failures", "Requests that failed on a node, per second, by what happened.",
              per_second("forebay_node_failures_total", "node, kind"), "reqps"),
        Panel("Retries", "Attempts beyond the first, as a share of requests. retry.budget (0.1) is "
              "where it stops.",
              {"retries": f"sum(rate(forebay_retries_total[{RANGE}]))"
                          f" / sum(rate(forebay_requests_total[{RANGE}]))"},
              "percentunit", options={"min": 0}),
        Panel("Model swaps", "Models loaded because a request was sent to a node that had another "
              "one in memory, per minute.",
              {"swaps": "60 * " + of_fleet(f"rate(forebay_model_swaps_total[{RANGE}])")}),
        Panel("Database of records", "1 while keys, usage and history cannot be read or written.",
              {"{{instance}}": "max by (instance) (forebay_records_failing)"}),
        Panel("Waits for a key's rate", "Requests that had to wait because their key was over its "
             "limits, per second.",
             {"waits": of_fleet(f"rate(forebay_rate_waits_total[{RANGE}])")}, "reqps"),
       Panel("Prompts from cache", "The share of prompt tokens that were probably cached on the "
              "node that served them, where several nodes could.",
              {"hit rate": of_fleet(f"rate(forebay_prefix_hit_tokens_total[{RANGE}])") + " / "
                           + of_fleet(f"rate(forebay_prefix_tokens_total[{RANGE}])")},
              "percentunit", options={"min": 0}),
        Panel("Prefill saved", "Prompt processing time that cached tokens saved, in seconds per "
              "second.",
              {"saved": of_fleet(f"rate(forebay_prefix_saved_seconds_total[{RANGE}])")}, "s"),
        Panel("Slot changes", "Changes of the number of slots that a node was found to run "
              "well, per minute.",
              {"{{node}}":
                  f"60 * sum by (node) (rate(forebay_node_slots_changes_total[{RANGE}]))"}),
    ],
    "The fleet": [
        Panel("Gateways", "Gateways that share a queue, by role; empty without a "
              "shared queue.", {"{{state}}": of_fleet("forebay_replicas", "state")}, stacked=True),
        Panel("Modes", "How many gateways are coordinated, seeking a leader, alone (the store is "
              "lost) or cut off (it is lost for them only).",
              {"{{mode}}": "sum by (mode) (forebay_fleet_mode)"}, stacked=True),
        Panel("Requests by gateway", "Ended requests per second: shows whether the load balancer "
              "distributes evenly.",
              per_second("forebay_requests_total", "instance"), "reqps", stacked=True),
        Panel("Leaders", "The number of the leader; a step is a failover.",
              {"{{job}}": "max by (job) (forebay_fleet_epoch)"}, width=12),
        Panel("Failovers and outages", "Changes of leader, and times that a gateway lost the "
              "shared store, per minute.",
              {"failovers": "60 * " + of_fleet(f"rate(forebay_fleet_failovers_total[{RANGE}])"),
               "outages": f"60 * sum(rate(forebay_store_outages_total[{RANGE}]))"}, width=12),
        Panel("Skew", "Gateways with other settings, or another version: not for longer than a "
              "rolling restart takes.",
              {"other {{what}}": "max by (what) (forebay_replicas_differing)"}, width=12),
        Panel("Age of the figures", "Age of the fleet's figures at a gateway; 0 while the leader "
              "answers in time.",
              {"{{instance}}": "max by (instance) (forebay_fleet_counted_seconds_ago)"}, "s",
              width=12),
    ],
    "The gateway itself": [
        Panel("Leases", "Slots of nodes that the gateways hold. With nothing running it is 0.",
              {"{{instance}}": "max by (instance) (forebay_leases)"}),
        Panel("Leases orphaned", "Slots that the watchdog found without a request, per minute; "
              "anything but 0 is a bug, and the log says more.",
              {"orphaned": f"60 * sum(rate(forebay_leases_orphaned_total[{RANGE}]))"}),
        Panel("Tasks", "Tasks of the event loop: a level that only rises is a leak.",
              {"{{instance}}": "max by (instance) (forebay_tasks)"}),
        Panel("Connections", "Open connections, idle ones included, to clients and to nodes.",
              {"{{side}}": "sum by (side) (forebay_connections)"}),
        Panel("Request bodies", "Bytes of request bodies that are counted now.",
              {"{{instance}}": "max by (instance) (forebay_body_bytes)"}, "bytes"),
        Panel("Workers", "Processes that serve: fewer than server.workers while one is restarted.",
              {"{{instance}}": "max by (instance) (forebay_workers)"}),
        Panel("Log lines dropped", "Lines per minute that were dropped because nobody read "
              "standard output or error fast enough.",
              {"dropped": f"60 * sum(rate(forebay_log_lines_dropped_total[{RANGE}]))"}),
    ],
    "Jobs and sessions": [
        Panel("Unfinished jobs", "Jobs queued and running, by type. At jobs.max_queue_depth (500) "
              "queued of a type, more are refused.",
              {"{{type}} {{status}}":
               of_fleet('forebay_jobs{status=~"queued|running"}', "type, status")}),
        Panel("Jobs by status", "All jobs in the store.",
              {"{{status}}": "sum by (status) (max by (job, type, status) (forebay_jobs))"},
              stacked=True),
        Panel("Job waits", "Time that jobs were queued before they started, p95.",
              {"{{type}}": quantiles("forebay_job_wait_seconds", "type")["p95 {{type}}"]}, "s"),
        Panel("GPU memory reserved", "What running task types have reserved of it.",
              {"reserved": "sum(forebay_vram_reserved_bytes)"}, "bytes"),
        Panel("Deleted because of age", "Rows that jobs.retention_days, usage.retention_days and "
              "the bounds of the page's memory deleted, per minute, by kind.",
              {"{{kind}}":
                  f"60 * sum by (kind) (rate(forebay_retention_deleted_total[{RANGE}]))"}),
        Panel("Sessions", "Conversations held, and prompts pending in them.",
              {"sessions": "sum(forebay_sessions)",
               "pending prompts": "sum(forebay_sessions_pending_prompts)"}),
        Panel("Prompts", "Prompts of sessions at their end, per second, by outcome.",
              per_second("forebay_session_prompts_total", "outcome"), "reqps", stacked=True),
    ],
}  # fmt: skip


def _filtered(query: str) -> str:
    """Add the choice of gateways to every metric of a query."""
    chosen = re.sub(r"(forebay_\w+)(?!\w|\{)", r"\1{}", query)
    return re.sub(r"(forebay_\w+)\{(?=(.))", _matched, chosen)


def _matched(found: re.Match[str]) -> str:
    comma = "" if found[2] == "}" else ", "
    return f'{found[1]}{{instance=~"$instance"{comma}'


def _drawn(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    lines = {"lineWidth": 1, "fillOpacity": 25 if panel.stacked else 8, "showPoints": "never",
             "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"}}  # fmt: skip
    dashed = [
        {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
        {"id": "custom.fillOpacity", "value": 0},
        {"id": "custom.stacking", "value": {"mode": "none", "group": "B"}},
    ]
    drawn: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": _filtered(query),
             "legendFormat": legend, "range": True}
            for index, (legend, query) in enumerate(panel.queries.items())
        ],
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, **panel.options},
            "overrides": [],
        },
    }  # fmt: skip
    if panel.kind == "timeseries":
        drawn["fieldConfig"]["defaults"]["custom"] = lines
        drawn["fieldConfig"]["overrides"] = [
            {"matcher": {"id": "byRegexp", "options": "/(max_size| slots)$/"}, "properties": dashed}
        ]
        drawn["options"] = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    return drawn


def _panels() -> list[dict[str, Any]]:
    """Lay the rows out from left to right and from top to bottom."""
    drawn: list[dict[str, Any]] = []
    y = 0
    for title, panels in ROWS.items():
        drawn.append({"id": len(drawn) + 1, "type": "row", "title": title, "collapsed": False,
                      "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}, "panels": []})  # fmt: skip
        x, y = 0, y + 1
        for panel in panels:
            if x + panel.width > COLUMNS:
                x, y = 0, y + panel.height
            drawn.append(_drawn(panel, len(drawn) + 1, x, y))
            x += panel.width
        y += panels[-1].height
    return drawn


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource",
         "query": "prometheus", "current": {}, "hide": 0},
        {"name": "instance", "label": "Gateway", "type": "query", "datasource": SOURCE,
         "query": {"query": "label_values(forebay_queue_max_size, instance)", "refId": "A"},
         "includeAll": True, "multi": True, "allValue": ".*", "refresh": 2, "sort": 1,
         "current": {"text": ["All"], "value": ["$__all"]}},
    ]  # fmt: skip


def page() -> str:
    """Return the dashboard as Grafana imports it."""
    dashboard = {
        "uid": "forebay",
        "title": "Forebay",
        "description": "The queue in front of your LLMs. What each metric means: "
        "docs/reference/metrics.md; what to do about an alert: docs/operations.md.",
        "tags": ["forebay", "llm"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": _panels(),
    }
    return json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"
