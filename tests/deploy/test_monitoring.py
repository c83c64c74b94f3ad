"""The dashboard and the alerts ask for metrics that there are; the alerts fire when they should.

The latter is judged by Prometheus itself, where its `promtool` is installed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tools.reference.metrics import described

from .queries import SERIES, Fault, added_up, faults, labels_left, parsed

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "forebay.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [
    pytest.param(target, id=f"{panel['title']} {target['refId']}")
    for panel in PANELS
    for target in panel["targets"]
]
RULES = DEPLOY / "prometheus" / "forebay.rules.yml"
ALERTS = [
    pytest.param(rule, id=rule["alert"])
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
]
RULE_TESTS = DEPLOY / "prometheus" / "forebay.test.yml"
UNITS = {"short", "s", "percentunit", "reqps", "bytes"}


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("sum(forebay_queue_dept)", "there is no series forebay_queue_dept"),
        ("sum(forebay_queue_wait_seconds)", "there is no series forebay_queue_wait_seconds"),
        ('forebay_queue_depth{colour="red"}', "forebay_queue_depth has no label colour"),
        ("sum by (user) (forebay_queue_depth)", "forebay_queue_depth has no label user"),
        ("forebay_jobs / on (node) forebay_node_up", "forebay_jobs has no label node"),
        ("histogram_quantile(0.9, sum(rate(forebay_request_seconds_bucket[5m])))",
         "le is summed away"),
        ('rate(forebay_requests_total{outcome=~"served|lost_it"}[5m])',
         "outcome is never lost_it"),
    ],
)  # fmt: skip
def test_a_query_for_what_there_is_not_is_noticed(query: str, fault: str) -> None:
    assert faults(query) == [Fault(fault)]


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("sum(forebay_queue_depth)", {"forebay_queue_depth"}),
        ("sum by (job) (rate(forebay_queue_rejected_total[5m]))", {"forebay_queue_rejected_total"}),
        ("max by (job) (forebay_jobs) / sum(forebay_node_slots)", {"forebay_node_slots"}),
        ("sum by (job) (sum by (job, instance) (forebay_queue_depth))", {"forebay_queue_depth"}),
        ("max by (job) (sum by (job, instance) (forebay_queue_depth))", set()),
        ("sum(max by (job, node) (forebay_node_slots * forebay_node_up))", set()),
        ("sum(rate(forebay_requests_total[5m]))", set()),
    ],
)
def test_figures_of_a_fleet_that_are_added_up_are_noticed(query: str, fault: set[str]) -> None:
    assert added_up(parsed(query)) == fault


# -- the dashboard


@pytest.mark.parametrize("target", TARGETS)
def test_a_query_of_the_dashboard_asks_for_what_there_is(target: dict[str, Any]) -> None:
    assert faults(target["expr"]) == []
    assert added_up(parsed(target["expr"])) == set()
    shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    assert shown <= labels_left(parsed(target["expr"]))


def test_every_panel_says_how_to_read_it_and_where_its_figures_come_from() -> None:
    assert len(PANELS) > 20
    for panel in PANELS:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["datasource"]["uid"] == "${DS_PROMETHEUS}"
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert variables == {"DS_PROMETHEUS", "instance"}


def test_no_two_panels_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert taken.isdisjoint(cells), panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_every_metric_of_ours_is_on_the_dashboard() -> None:
    shown = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    ours = {metric.name for metric in described() if metric.name.startswith("forebay_")}
    assert {name for name in ours if name not in shown} == set()


# -- the alerts


@pytest.mark.parametrize("rule", ALERTS)
def test_an_alert_asks_for_what_there_is_and_says_what_to_do(rule: dict[str, Any]) -> None:
    assert faults(rule["expr"]) == []
    assert added_up(parsed(rule["expr"])) == set()
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    words = rule["annotations"]
    assert set(words) == {"summary", "description", "runbook"}
    named = set(re.findall(r"\$labels\.(\w+)", f"{words['summary']} {words['description']}"))
    assert named <= labels_left(parsed(rule["expr"]))
    page, _, anchor = words["runbook"].partition("#")
    headings = re.findall(r"^### (\w+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert rule["alert"] in headings
    assert anchor == rule["alert"].lower()


def test_every_section_about_an_alert_is_about_one_that_there_is() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    headings = re.findall(r"^### (Forebay\w+)$", page, re.MULTILINE)
    assert headings == [rule.id for rule in ALERTS]


def test_every_alert_is_tried_with_series_that_there_are() -> None:
    tests = yaml.safe_load(RULE_TESTS.read_text())["tests"]
    expected = {
        re.findall(r'alertname="(\w+)"', sample["labels"])[0]
        for test in tests
        for case in test["promql_expr_test"]
        for sample in case["exp_samples"]
    }
    assert expected == {rule.id for rule in ALERTS}
    for test in tests:
        for given in test["input_series"]:
            (selector,) = [parsed(given["series"])]
            labels = {matcher.name for matcher in selector.matchers.matchers}
            assert labels == SERIES[selector.name], given["series"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("words", [["check", "rules", RULES], ["test", "rules", RULE_TESTS]])
def test_prometheus_itself_agrees(words: list[str]) -> None:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_reads_the_rules_under_the_name_that_they_ask_for() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert config["rule_files"] == [RULES.name]
    scraped, _ = config["scrape_configs"]
    assert f'up{{job="{scraped["job_name"]}"}}' in RULES.read_text()
