"""The numbers are live, say so, and come back after the gateway does."""

from __future__ import annotations

import asyncio
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from .conftest import CHAT, LIMIT_S, OK, end

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

    from .conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

NOTHING = "\N{EN DASH}"


def figure(page: Page, name: str) -> Locator:
    """One of the large numbers."""
    return page.locator(f".tile-{name} .figure-large")


async def test_the_numbers_follow_the_queue_while_the_page_is_open(site: Site) -> None:
    node = await site.node(slots=1)
    await site.start(node)
    page = await site.open()
    await expect(page.get_by_role("status").get_by_text("Live", exact=True)).to_be_visible()
    await expect(figure(page, "waiting")).to_have_text("0")
    running = await site.hold(node)
    await site.ask()
    await site.ask(headers={"X-Forebay-Priority": "high"})
    await expect(figure(page, "waiting")).to_have_text("2")
    await expect(figure(page, "processing")).to_have_text("1")
    await expect(page.locator("#nodes .cells i.used")).to_have_count(1)
    await expect(page.locator("#models tbody tr td").nth(0)).to_have_text("2")
    await running.answer(OK)
    for _ in range(2):
        await (await node.next_call()).answer(OK)
    await expect(figure(page, "waiting")).to_have_text("0")
    await expect(figure(page, "served_minute")).to_have_text("3")
    await expect(page.locator("#nodes .cells i.used")).to_have_count(0)
    waits = page.locator(".figure").nth(1)
    await expect(waits.locator("h3")).to_have_text("Time in line, 95% within, by priority")
    await expect(waits.locator(".legend-name")).to_have_text(["high", "normal"])


async def test_a_wait_that_was_too_long_counts_among_the_refused_from_the_start_on(
    site: Site,
) -> None:
    node = await site.node(slots=1)
    await site.start(node)
    page = await site.open()
    await site.hold(node)
    await site.ask(headers={"X-Forebay-Max-Wait": "1"})
    await expect(figure(page, "rejected_minute")).to_have_text("1")
    await expect(page.locator(".tile-rejected_minute")).to_contain_text("1 since the start")


async def test_the_time_line_shows_who_waited_to_eyes_keys_and_readers(site: Site) -> None:
    node = await site.node(slots=1)
    await site.start(node)
    page = await site.open()
    await expect(page.get_by_text("Nothing waited in this time.")).to_be_visible()
    await site.hold(node)
    await site.ask()
    await expect(page.get_by_text("Nothing waited in this time.")).to_be_hidden()
    await expect(page.locator(".figure").nth(0).locator(".legend b").nth(1)).to_have_text("1")
    slider = page.get_by_role("slider")
    await slider.focus()
    await page.keyboard.press("End")
    await expect(slider).to_have_attribute("aria-valuetext", re.compile(r"\d\d: .*normal 1"))
    await page.keyboard.press("Home")
    await expect(slider).to_have_attribute("aria-valuetext", re.compile(f"normal {NOTHING}"))
    await page.keyboard.press("Escape")
    await page.get_by_text("The time line as a table").click()
    row = page.get_by_role("table", name="The time line, minute by minute").locator("tbody tr")
    await expect(row.first.locator("td").first).to_have_text("1")


async def test_the_time_line_is_zoomed_by_button_and_by_dragging(site: Site) -> None:
    await site.start(await site.node())
    page = await site.open()
    await page.get_by_role("button", name="1 min", exact=True).click()
    chosen = page.locator("#zoom [aria-pressed=true]")
    await expect(chosen).to_have_text("1 min")
    await page.get_by_role("slider").scroll_into_view_if_needed()
    box = await page.get_by_role("slider").bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + box["width"] * 0.85, box["y"] + 80)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] - 12, box["y"] + 80)
    await expect(page.locator(".moment")).to_have_text(re.compile(r"\d\d:\d\d:\d\d"))
    await page.mouse.up()
    back = page.get_by_role("button", name="Back to live")
    await expect(back).to_be_visible()
    await expect(chosen).to_have_count(0)
    await page.keyboard.press("Escape")
    await expect(back).to_be_hidden()


async def test_a_drag_before_the_first_sample_zooms_to_it_and_draws_what_can_be_drawn(
    site: Site,
) -> None:
    await site.start(await site.node())
    page = await site.open()
    slider = page.get_by_role("slider")
    await slider.scroll_into_view_if_needed()
    box = await slider.bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + box["width"] * 0.1, box["y"] + 80)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 80)
    await page.mouse.up()
    await expect(page.get_by_role("button", name="Back to live")).to_be_visible()


def a_day(waiting: int) -> dict[str, object]:
    """What `GET /events/history` tells: a sample a minute."""
    minutes = [*range(29_000_000, 29_000_600), *range(29_000_900, 29_001_440)]  # it was down
    column = [waiting] * len(minutes)
    return {
        "priorities": ["high", "normal"], "step_seconds": 60, "at": [60 * at for at in minutes],
        "depth": {"high": column, "normal": column}, "processing": column, "served": column,
        "rejected": column, "wait_p50_seconds": column, "wait_p95_seconds": column,
        "tokens_per_second": column,
        "wait_p50_seconds_by_priority": {"high": column, "normal": column},
        "wait_p95_seconds_by_priority": {"high": column, "normal": [9] * len(minutes)},
    }  # fmt: skip


async def test_the_time_line_looks_back_a_day_and_says_when_it_cannot(site: Site) -> None:
    await site.start(await site.node())
    page = await site.open(clock=True)
    told: list[dict[str, Any]] = [{"status": 503, "json": {"error": {"message": "not yet"}}}]
    await page.route("**/events/history?*", lambda route: route.fulfill(**told[0]))
    await page.get_by_role("button", name="24 h").click()
    await expect(page.locator("#timeline-problem")).to_have_text("This cannot be read now: not yet")
    told[0] = {"json": a_day(7)}
    await page.clock.run_for(10_100)
    await expect(page.locator(".figure-head h3").nth(2)).to_have_text(
        "Completed and refused, per 30 min"
    )
    await expect(page.locator("#timeline-problem")).to_be_empty()
    waits = page.locator(".figure").nth(1)
    await expect(waits.locator("h3")).to_have_text("Time in line, 95% within, by priority")
    await expect(waits.locator(".legend b").nth(1)).to_have_text("9.0 s")
    await expect(page.locator(".figure").nth(0).locator(".legend b").nth(1)).to_have_text("7")
    await page.get_by_role("slider").focus()
    slider = page.get_by_role("slider")
    await page.keyboard.press("Home")
    await expect(slider).to_have_attribute("aria-valuetext", re.compile("normal 7"))
    for _ in range(3):
        await page.keyboard.press("PageUp")
    gap = re.compile(f"normal {NOTHING}")
    await expect(slider).to_have_attribute("aria-valuetext", gap)
    await page.get_by_role("button", name="1 min", exact=True).click()
    await expect(page.locator(".figure").nth(0).locator(".legend b").nth(1)).to_have_text("0")
    await expect(waits.locator("h3")).to_have_text("Time in line")


async def test_a_trouble_is_said_in_words_with_what_to_do_and_aloud_once(site: Site) -> None:
    node = await site.node()
    await node.stop_listening()
    await site.start(node, await site.node())
    page = await site.open()
    banner = page.get_by_role("region", name="What is wrong now")
    await expect(banner).to_contain_text("gpu1 has been offline")
    await expect(banner).to_contain_text("forebay nodes remove gpu1")
    aloud = page.locator("#troubles-said")
    await expect(aloud).to_contain_text(re.compile("gpu1 has .* offline"))
    first = await aloud.inner_text()
    said = banner.locator(".what")
    then = await said.inner_text()
    await expect(said).not_to_have_text(then)  # the seconds go on, on the page
    assert await aloud.inner_text() == first  # and nobody is told of each


async def test_the_first_visitor_is_told_what_to_do(site: Site) -> None:
    node = await site.node(models=("m",))
    await site.start(node)
    page = await site.open()
    await expect(page.locator("#curl")).to_contain_text(f"curl {site.url}{CHAT}")
    await expect(page.locator("#curl")).to_contain_text('"model":"m"')
    await expect(page.locator("#base-url")).to_contain_text(f"OPENAI_BASE_URL={site.url}/v1")
    await (await site.hold(node)).answer(OK)
    await expect(page.locator("#welcome")).to_be_hidden()


async def test_nobody_is_told_to_ask_a_gateway_that_cannot_answer(site: Site) -> None:
    node = await site.node()
    await node.stop_listening()
    await site.start(node, queue={"offline_wait_seconds": 0})
    page = await site.open()
    await expect(page.locator("#troubles")).to_contain_text("No node is up")
    await expect(page.locator("#welcome")).to_be_hidden()


async def test_the_page_survives_a_gateway_that_is_killed_and_started_again(site: Site) -> None:
    node = await site.node()
    words = ("--node", node.url)
    gateway = await site.serve(*words)
    page = await site.open()
    await (await site.hold(node)).answer(OK)
    await expect(figure(page, "served_minute")).to_have_text("1")
    failed: asyncio.Queue[str] = asyncio.Queue()
    page.on("requestfailed", lambda request: failed.put_nowait(request.url))
    gateway.send_signal(signal.SIGKILL)
    await end(gateway)
    async with asyncio.timeout(LIMIT_S):  # the stream that was cut, and a try in vain
        assert [await failed.get() for _ in range(2)] == [f"{site.url}/events"] * 2
    state = page.locator("#live-state")
    await expect(state).to_have_text("Reconnecting…")
    await expect(page.locator("#live-age")).to_contain_text("last heard")
    await expect(page.locator("body")).to_have_attribute("data-old", "yes")
    await expect(figure(page, "served_minute")).to_have_text("1")  # old, and marked as old
    await site.serve(*words, port=site.port)
    await expect(state).to_have_text("Live")
    await expect(page.locator("body")).not_to_have_attribute("data-old", "yes")
    await expect(figure(page, "served_minute")).to_have_text("0")  # a new epoch begins anew
