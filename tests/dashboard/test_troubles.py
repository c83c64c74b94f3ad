"""What the banner says: each trouble in words, the worst first, and silence when all is well."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from forebay.api.events import ModelSnapshot, NodeSnapshot, QueueSnapshot, TroubleSnapshot, Words
from forebay.dashboard.troubles import SHOWN_MAX, ObservedState, find_troubles

NODE = NodeSnapshot(
    name="gpu1", kind="ollama", state="online", state_seconds=100.0, slots=2, in_flight=1,
    models=["m"], models_total=1, loaded=["m"], failing=[], gpu_load=None, vram_used_bytes=None,
    vram_total_bytes=None, failures={}, failures_15_minutes={}, last_error=None, simulated=False,
)  # fmt: skip
MODEL = ModelSnapshot("m", ["openai"], 0, 1, 2, 1.0, 2.0)
QUEUE = QueueSnapshot(
    enabled=True, waiting=0, processing=1, max_size=10, average_wait_seconds=None,
    average_service_seconds=None, by_priority={"normal": 0}, served_per_minute=0,
    rejected_per_minute=0, served_total=0, rejected_total=0, timeouts_total=0, cancelled_total=0,
    retries_total=0, model_swaps_total=0, prefix_tokens_total=0, prefix_hit_tokens_total=0,
    prefix_saved_seconds_total=0.0, waiting_jobs=0, processing_jobs=0,
    tokens_per_second=None, first_token_p50_seconds=None, first_token_p95_seconds=None,
)  # fmt: skip
WELL = ObservedState(
    queue=QUEUE, models=[MODEL], nodes=[NODE], draining=False, searching=False, wait_s_max=60.0,
    refused={}, remedy=Words("do this", "こうする"),
)  # fmt: skip


def troubles(**changes: Any) -> dict[str, TroubleSnapshot]:
    return {trouble.code: trouble for trouble in find_troubles(replace(WELL, **changes))}


def node(**changes: Any) -> NodeSnapshot:
    return replace(NODE, **changes)


def test_when_all_is_well_nothing_is_said() -> None:
    assert find_troubles(WELL) == []


def test_a_database_whose_file_is_gone_is_shown_with_what_to_do() -> None:
    found = troubles(lost_files=["jobs.database"])["database_lost"]
    assert (found.level, "jobs.database" in found.text.ja) == ("error", True)
    assert "restart the gateway" in found.advice.en


def test_an_offline_node_is_told_with_how_long_why_and_what_to_do() -> None:
    gone = node(name="gpu2", state="offline", state_seconds=40.3, last_error="connection refused")
    found = troubles(nodes=[NODE, gone])["node_offline"]
    assert found.level == "error"
    assert found.text.en == "Node gpu2 has been offline for 40 s. Last error: connection refused"
    assert "gpu2" in found.text.ja
    assert "connection refused" in found.text.ja
    assert found.advice.en.endswith("forebay nodes remove gpu2")
    assert found.node == "gpu2"


def test_a_node_that_has_just_gone_is_not_said_to_be_gone_for_zero_seconds() -> None:
    found = troubles(nodes=[NODE, node(name="b", state="offline", state_seconds=0.4)])
    assert found["node_offline"].text.en == "Node b has just gone offline."


def test_many_nodes_offline_at_once_are_one_trouble() -> None:
    gone = [node(name=f"n{n}", state="offline") for n in range(5)]
    found = troubles(nodes=[NODE, *gone])
    assert "node_offline" not in found
    assert found["nodes_offline"].text.en == "5 of 6 nodes are offline: n0, n1, n2 and 2 more."


def test_no_node_up_is_said_before_which_ones_are_down() -> None:
    found = find_troubles(replace(WELL, nodes=[node(state="offline")]))
    assert [trouble.code for trouble in found] == ["no_node", "node_offline"]


def test_no_node_at_all_says_how_to_add_one() -> None:
    assert "forebay nodes add" in troubles(nodes=[], models=[])["no_node"].advice.en


def test_while_nodes_are_looked_for_their_absence_is_no_trouble() -> None:
    assert troubles(nodes=[], models=[], searching=True) == {}
    assert troubles(nodes=[node(state="offline")], searching=True) == {}


def test_requests_that_wait_for_a_model_without_a_node_are_told() -> None:
    stranded = replace(MODEL, waiting=3, slots=0)
    assert "3 requests wait for m" in troubles(models=[stranded])["model_offline"].text.en


@pytest.mark.parametrize(
    ("waiting", "code"), [(7, None), (8, "queue_nearly_full"), (10, "queue_full")]
)
def test_a_queue_is_called_nearly_full_and_then_full(waiting: int, code: str | None) -> None:
    found = troubles(queue=replace(QUEUE, waiting=waiting))
    assert list(found) == ([code] if code else [])
    assert all("queue.max_size" in one.advice.en for one in found.values())


def test_refusals_of_the_last_minute_are_told_with_the_remedy_of_the_most_common() -> None:
    found = troubles(refused={"queue_full": 5, "no_node": 1})["refusing"]
    assert found.text.en == "6 requests were refused in the last minute: queue_full 5, no_node 1."
    assert found.advice == WELL.remedy


def test_a_wait_beyond_the_limit_is_told_before_it_is_waited_out() -> None:
    found = troubles(models=[replace(MODEL, wait_p50_seconds=90.0)])["long_waits"]
    assert "90 s" in found.text.en
    assert "queue.max_wait_seconds" in found.advice.en


def test_a_model_that_keeps_failing_on_a_node_is_told() -> None:
    assert "keeps failing with m" in troubles(nodes=[node(failing=["m"])])["model_failing"].text.en


@pytest.mark.parametrize(("seconds", "told"), [(60.0, False), (300.0, True)])
def test_loading_is_a_trouble_only_when_it_takes_too_long(seconds: float, *, told: bool) -> None:
    found = troubles(nodes=[NODE, node(name="b", state="loading", state_seconds=seconds)])
    assert ("node_loading" in found) == told


def test_a_drained_node_says_how_to_use_it_again() -> None:
    found = troubles(nodes=[NODE, node(name="b", state="draining", in_flight=1)])["node_draining"]
    assert found.level == "info"
    assert found.text.en.endswith("1 still runs.")
    assert found.advice.en.endswith("forebay nodes resume b")


def test_simulated_answers_are_never_passed_off_as_real() -> None:
    assert "SIMULATED" in troubles(nodes=[node(simulated=True)])["simulated"].text.en
    assert "simulated" not in troubles(nodes=[NODE, node(name="b", simulated=True)])


def test_a_gateway_that_stops_says_so() -> None:
    assert troubles(draining=True)["shutting_down"].level == "warning"


def test_the_worst_come_first_and_no_more_than_anyone_reads() -> None:
    nodes = [NODE, *(node(name=f"d{n}", state="draining") for n in range(20))]
    found = find_troubles(replace(WELL, nodes=nodes, queue=replace(QUEUE, waiting=10)))
    assert len(found) == SHOWN_MAX
    assert found[0].code == "queue_full"


def test_a_long_error_is_cut() -> None:
    gone = node(state="offline", last_error="x" * 10_000)
    assert len(troubles(nodes=[NODE, gone])["node_offline"].text.en) < 300
