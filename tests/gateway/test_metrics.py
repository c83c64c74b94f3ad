"""Every metric name there is so far, what it counts, and that its labels are bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from .conftest import OK

if TYPE_CHECKING:
    from .conftest import Rig

LABELS = {
    "forebay_queue_depth": {"priority"},
    "forebay_queue_max_size": set(),
    "forebay_queue_wait_seconds": {"priority", "outcome"},
    "forebay_queue_enqueued": set(),
    "forebay_queue_rejected": {"reason"},
    "forebay_queue_timeouts": set(),
    "forebay_rate_waits": set(),
    "forebay_queue_cancelled": set(),
    "forebay_requests": {"route", "outcome"},
    "forebay_first_byte_seconds": set(),
    "forebay_request_seconds": set(),
    "forebay_tokens": {"kind"},
    "forebay_usage_tokens": {"key", "kind"},
    "forebay_node_in_flight": {"node"},
    "forebay_node_slots": {"node"},
    "forebay_node_slots_changes": {"node"},
    "forebay_node_up": {"node"},
    "forebay_records_failing": set(),
    "forebay_node_kv_free_tokens": {"node"},
    "forebay_node_failures": {"node", "kind"},
    "forebay_retries": set(),
    "forebay_estimate_error_seconds": set(),
    "forebay_model_swaps": set(),
    "forebay_prefix_tokens": set(),
    "forebay_prefix_hit_tokens": set(),
    "forebay_prefix_saved_seconds": set(),
    "forebay_jobs": {"type", "status"},
    "forebay_job_wait_seconds": {"type"},
    "forebay_vram_reserved_bytes": set(),
    "forebay_retention_deleted": {"kind"},
    "forebay_sessions": set(),
    "forebay_sessions_pending_prompts": set(),
    "forebay_session_prompts": {"outcome"},
    "forebay_leases": set(),
    "forebay_leases_orphaned": set(),
    "forebay_connections": {"side"},
    "forebay_body_bytes": set(),
    "forebay_tasks": set(),
    "forebay_workers": set(),
    "forebay_log_lines_dropped": set(),
    "nexus_queue_depth": set(),
    "nexus_backend_pending_requests": {"backend"},
}
"""The names of the design, without the `_total` of counters, and the labels each has."""
WITH_WORK = {
    "forebay_node_kv_free_tokens", "forebay_jobs", "forebay_job_wait_seconds",
    "forebay_session_prompts", "forebay_usage_tokens",
}  # fmt: skip
"""Empty until there is a job or a prompt; the tests of those look at them."""


class Scrape:
    """One reading of `/metrics`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {family.name: family for family in text_string_to_metric_families(text)}

    def value(self, name: str, **labels: str) -> float:
        for family in self.families.values():
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        raise AssertionError(f"{name} {labels} is not in:\n{self.text}")


async def scrape(rig: Rig) -> Scrape:
    reply = await rig.get("/metrics")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    return Scrape(reply.body.decode())


async def a_day(rig: Rig) -> None:
    """Let a bit of everything happen: served, failed, retried, refused, late, cancelled."""
    first, second = await rig.node(), await rig.node()
    await rig.start(first, second, queue={"max_size": 2})
    usage = {"prompt_tokens": 12, "completion_tokens": 34}
    client, call = await rig.run(first, user="u-secret", headers={"X-Request-Id": "id-secret"})
    rig.clock.advance(2.0)
    await call.answer({"choices": [], "usage": usage})
    await client.reply()
    client, call = await rig.run(second)
    call.reset()
    await (await first.next_call()).answer(OK)
    await client.reply()
    await rig.run(second)
    await rig.run(first)
    low = {"X-Forebay-Priority": "low", "X-Request-Id": "low-one"}
    await rig.line_up(1, headers=low)
    [late] = await rig.line_up(1)
    await (await rig.ask(headers={"X-Forebay-Priority": "low"})).reply()
    await rig.get("/v1/queue/low-one", method="DELETE")
    rig.clock.advance(60.0)
    await late.reply()
    await (await rig.ask(model="model-secret")).reply()
    await (await rig.ask(path="/v1/embeddings", stream="bad")).reply()


async def test_every_metric_of_the_design_is_there_with_its_labels_and_no_others(
    rig: Rig,
) -> None:
    await a_day(rig)
    seen = await scrape(rig)
    assert set(seen.families) == set(LABELS)
    for name, family in seen.families.items():
        assert family.documentation
        assert family.samples or name in WITH_WORK, name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == LABELS[name], sample


async def test_metrics_count_what_happened(rig: Rig) -> None:
    await a_day(rig)
    seen = await scrape(rig)
    value = seen.value
    assert value("forebay_queue_max_size") == 2
    assert value("forebay_queue_enqueued_total") == 2
    assert value("forebay_queue_rejected_total", reason="queue_full") == 1
    assert value("forebay_queue_rejected_total", reason="model_not_found") == 1
    assert value("forebay_queue_timeouts_total") == 1
    assert value("forebay_queue_cancelled_total") == 1
    assert value("forebay_retries_total") == 1
    assert value("forebay_tokens_total", kind="prompt") == 12
    assert value("forebay_node_failures_total", node="n2", kind="lost") == 1
    chat = "/v1/chat/completions"
    assert value("forebay_requests_total", route=chat, outcome="served") == 2
    assert value("forebay_requests_total", route=chat, outcome="queue_timeout") == 1
    assert value("forebay_requests_total", route=chat, outcome="cancelled") == 1
    bad = "/v1/embeddings"
    assert value("forebay_requests_total", route=bad, outcome="invalid_request") == 1
    assert value("forebay_first_byte_seconds_count") == 2
    assert value("forebay_request_seconds_sum") == 2.0
    served = {"priority": "normal", "outcome": "served"}
    assert value("forebay_queue_wait_seconds_count", **served) == 2  # immediate ones too
    assert value("forebay_queue_wait_seconds_bucket", le="0.001", **served) == 2
    late = {"priority": "normal", "outcome": "queue_timeout"}
    assert value("forebay_queue_wait_seconds_sum", **late) == 60.0
    cancelled = {"priority": "low", "outcome": "cancelled"}
    assert value("forebay_queue_wait_seconds_count", **cancelled) == 1


async def test_gauges_show_what_is(rig: Rig) -> None:
    node, down = await rig.node(slots=2), await rig.node(models=("n",))
    await rig.start(node, down)
    await rig.run(node)
    await rig.run(node)
    await rig.line_up(2)
    await rig.line_up(1, headers={"X-Forebay-Priority": "high"})
    down.health = "error"
    await rig.until_node("n2", "offline")
    value = (await scrape(rig)).value
    assert value("forebay_queue_depth", priority="high") == 1
    assert value("forebay_queue_depth", priority="normal") == 2
    assert value("forebay_queue_depth", priority="low") == 0
    assert value("nexus_queue_depth") == 3
    assert value("forebay_node_in_flight", node="n1") == 2
    assert value("nexus_backend_pending_requests", backend="n1") == 2
    assert value("forebay_node_slots", node="n1") == 2
    assert value("forebay_node_up", node="n1") == 1
    assert value("forebay_node_up", node="n2") == 0


async def test_an_estimate_is_held_against_what_came_of_it(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    await rig.measure(node, 10.0)
    _, call = await rig.run(node)
    [waiter] = await rig.line_up(1)
    rig.clock.advance(4.0)
    await call.answer(OK)
    await (await node.next_call()).answer(OK)
    await waiter.reply()
    seen = await scrape(rig)
    assert seen.value("forebay_estimate_error_seconds_count") == 1
    assert seen.value("forebay_estimate_error_seconds_sum") == 6.0


async def test_no_user_no_id_no_prompt_and_no_model_reaches_the_metrics(rig: Rig) -> None:
    await a_day(rig)
    text = (await scrape(rig)).text
    assert "secret" not in text
    assert "low-one" not in text


async def test_what_callers_invent_adds_no_labels(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    before = {"X-Forebay-Priority": "p0"}
    await (await rig.ask(model="x0", path="/v1/chat/completions?x=0", headers=before)).reply()
    lines = len((await scrape(rig)).text.splitlines())
    for number in range(1, 5):
        headers = {"X-Forebay-Priority": f"p{number}"}
        path = f"/v1/chat/completions?x={number}"
        await (await rig.ask(model=f"x{number}", path=path, headers=headers)).reply()
        await rig.get(f"/nowhere/{number}")
    assert len((await scrape(rig)).text.splitlines()) == lines
