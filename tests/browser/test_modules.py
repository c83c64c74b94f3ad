"""The modules of the page that only compute, asked directly in the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

HISTORY = """async () => {
  const { History } = await import("/dashboard/history.js");
  const sample = (waiting) => ({ depth: { normal: waiting }, processing: 1, served: 2, rejected: 0,
    wait_p50_seconds: null, wait_p95_seconds: null,
    wait_p95_seconds_by_priority: { normal: waiting / 10 } });
  const told = (number, depth) => ({ at: "2026-01-01T00:00:10.000Z", sample_number: number,
    depth: { normal: depth }, processing: depth, served: depth, rejected: depth,
    wait_p50_seconds: depth, wait_p95_seconds: depth,
    wait_p95_seconds_by_priority: { normal: depth } });
  const history = new History();
  const seen = {};
  history.replace(["normal"], told(5000, new Array(2000).fill(7)));
  seen.bounded = history.length;
  seen.twice = [history.add(5001, sample(1), "2026-01-01T00:00:11.000Z"),
    history.add(5001, sample(1), "2026-01-01T00:00:11.500Z")];
  history.add(5004, sample(3), "2026-01-01T00:00:14.000Z");
  seen.gap = [5000, 5001, 5002, 5003, 5004].map((n) => history.at(history.depth.normal, n));
  seen.waits = [5000, 5001, 5002, 5004].map((n) => history.at(history.waits.normal, n));
  seen.still = history.length;
  seen.sum = history.sum(history.columns.served, 5001, 5004);
  seen.time = new Date(history.timeOf(5001)).toISOString();
  history.add(1000000, sample(4), "2026-01-02T00:00:00.000Z");
  seen.long_gap = [history.length, history.at(history.depth.normal, 1000000)];
  history.replace(["normal"], told(2, [8, 9]));
  seen.restart = [history.length, history.first, history.add(3, sample(1), "2026-01-01T00:00:11Z")];
  return seen;
}"""

EVENTS = """async (cases) => {
  const { readEvents } = await import("/dashboard/sse.js");
  const encoder = new TextEncoder();
  return Promise.all(cases.map(async (chunks) => {
    const body = new ReadableStream({ start(to) {
      for (const chunk of chunks) to.enqueue(encoder.encode(chunk));
      to.close();
    } });
    const seen = [];
    for await (const event of readEvents(body)) seen.push(event);
    return seen;
  }));
}"""

TICKS = """async (cases) => {
  const { niceTicks } = await import("/dashboard/scale.js");
  return cases.map(([most, whole]) => niceTicks(most, 3, whole).ticks);
}"""


SLOTS_NOTES = """async (cases) => {
  const app = document.querySelector("script").src; // in the folder of those that the page uses
  const { showTiles } = await import(new URL("tiles.js", app));
  const queue = { enabled: true, max_size: 9, waiting: 0, average_service_seconds: null };
  const sessions = { held: 0, pending_prompts: 0 };
  return cases.map(([state, slots, processing, processing_jobs]) => {
    showTiles({ queue: { ...queue, processing, processing_jobs }, sessions, uptime_seconds: 1,
      nodes: [{ state, slots }] });
    const [, , figure, note] = document.querySelector(".tile-processing").children;
    return `${figure.textContent} ${note.textContent}`;
  });
}"""


async def asked(site: Site, script: str, *values: object) -> Any:
    """Run a script with nothing but the modules that it imports."""
    await site.start(await site.node())
    page = await site.blank()
    await page.goto(f"{site.url}/health")
    return await page.evaluate(script, *values)


async def test_the_history_is_bounded_shows_gaps_and_begins_anew_after_a_restart(
    site: Site,
) -> None:
    assert await asked(site, HISTORY) == {
        "bounded": 900,
        "twice": [True, False],
        "gap": [7, 1, None, None, 3],
        "waits": [7, 0.1, None, 0.3],
        "still": 900,
        "sum": 4,
        "time": "2026-01-01T00:00:11.000Z",
        "long_gap": [900, 4],
        "restart": [2, 1, True],
    }


async def test_events_are_read_however_their_bytes_are_cut(site: Site) -> None:
    text = ": started node=gpu1\r\n\r\nevent: hello\r\ndata: {\r\ndata: }\r\n\r\n"
    text += "data:x\n\nevent: without data\n\n"
    whole = [
        {"comment": "started node=gpu1"},
        {"event": "hello", "data": "{\n}"},
        {"event": "message", "data": "x"},
    ]
    assert await asked(site, EVENTS, [list(text), [text]]) == [whole, whole]


async def test_the_numbers_beside_a_chart_are_round_and_hold_the_highest_value(site: Site) -> None:
    cases = [(0, True), (1, True), (3, True), (62, True), (100, True), (0, False), (0.031, False)]
    ticks = await asked(site, TICKS, cases)
    for (most, whole), marks in zip(cases, ticks, strict=True):
        assert marks[0] == 0
        assert marks[-1] >= most
        assert 2 <= len(marks) <= 6
        assert not whole or all(mark == int(mark) for mark in marks)


async def test_the_slots_in_use_are_said_of_those_there_are(site: Site) -> None:
    cases = [("online", 1, 1, 0), ("online", 5, 1, 3), ("online", 5, 0, 1), ("draining", 4, 1, 0)]
    await site.start(await site.node())
    page = await site.open()
    assert await page.evaluate(SLOTS_NOTES, cases) == [
        "1 of 1 slot",
        "1 of 5 slots, 3 more run jobs",
        "0 of 5 slots, 1 more runs a job",
        "1 no slots to use now",
    ]
