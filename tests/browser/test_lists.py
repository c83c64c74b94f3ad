"""The lists of the page: requests, jobs and batches, opened, filtered, cancelled, tried again."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect
from sqlalchemy import insert

from forebay.jobs.store.schema import batches
from forebay.testing import RawClient

from .conftest import OK
from .test_looks import PHONE, found_by_axe
from .test_nodes import KEY, give_key, keys
from .test_safety import MARKUP

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

    from .conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def submit(site: Site, message: str) -> None:
    client = await RawClient.connect("127.0.0.1", site.port)
    await site.stack.enter_async_context(client)
    params = {"messages": [{"role": "user", "content": message}]}
    await client.post("/jobs", {"type": "chat", "model": "m", "params": params}, {})
    assert (await client.reply()).status == 202


async def unfold(page: Page, name: str) -> Locator:
    """Open a list by its heading, and return it."""
    heading = page.get_by_role("heading", name=name, exact=True)
    await heading.click()
    return page.locator(".lists section").filter(has=heading)


async def test_a_job_is_found_opened_cancelled_and_tried_again(site: Site) -> None:
    node = await site.node(slots=1)
    await site.start(node)
    held = await site.hold(node)
    for i in range(3):
        await submit(site, f"Hello {i}")
    page = await site.open()
    assert not [url for url in site.asked if "/jobs?" in url], "nothing is read while it is folded"
    jobs = await unfold(page, "Job list")
    rows = jobs.locator("tbody tr")
    await expect(rows).to_have_count(3)
    await expect(rows.first).to_contain_text("waiting")
    first = await rows.first.locator(".opener").inner_text()
    await rows.first.get_by_role("button", name=f"Cancel job {first}").click()
    await expect(rows.first).to_contain_text(f"Cancel job {first}?")
    await page.keyboard.press("Escape")
    await page.keyboard.press("Enter")
    await rows.first.get_by_role("button", name="Yes, cancel it").click()
    await expect(rows.first).to_contain_text("cancelled")
    await jobs.get_by_label("Show").select_option("cancelled")
    await expect(rows).to_have_count(1)
    await rows.first.get_by_role("button", name=f"Try job {first} again").click()
    await expect(jobs).to_contain_text("No jobs.")
    await jobs.get_by_label("Show").select_option("")
    await jobs.get_by_label("Find").fill("no such thing")
    await expect(jobs).to_contain_text("Nothing in the list has that.")
    await jobs.get_by_label("Find").fill("")
    await rows.first.locator(".opener").click()
    await expect(page.locator("#detail pre")).to_contain_text('"Hello 2"')
    await page.keyboard.press("Escape")
    await page.reload()
    await expect(rows).to_have_count(3)  # it is still open
    await held.answer(OK)
    for _ in range(3):
        await (await node.next_call()).answer(OK)
    await expect(rows.first).to_contain_text("completed")


async def test_who_is_in_line_is_listed_and_cancelled(site: Site) -> None:
    node = await site.node(slots=1)
    await site.start(node)
    running = await site.hold(node, headers={"X-Request-Id": "first"}, user="ann")
    await site.ask(headers={"X-Request-Id": "second"}, user="ben")
    third = await site.ask(headers={"X-Request-Id": "third", "X-Forebay-Priority": "high"})
    page = await site.open()
    in_line = await unfold(page, "In line")
    names = in_line.locator("tbody .opener")
    await expect(names).to_have_text(["first", "third", "second"])  # what runs, then the line
    await in_line.get_by_role("button", name="Request", exact=True).click()
    await expect(names).to_have_text(["first", "second", "third"])
    third_row = in_line.locator("tbody tr").nth(2)
    await third_row.get_by_role("button", name="Cancel request third").click()
    await third_row.get_by_role("button", name="Yes, cancel it").click()
    await expect(names).to_have_text(["first", "second"])
    assert (await third.reply()).status >= 400
    await in_line.get_by_label("Show").select_option("ended")
    await expect(in_line.locator("tbody tr")).to_contain_text(["cancelled"])
    await in_line.get_by_label("Show").select_option("waiting")
    await expect(names).to_have_text(["second"])
    await names.click()
    await expect(page.locator("#detail pre")).to_contain_text("every slot that could serve it")
    await running.answer(OK)
    await (await node.next_call()).answer(OK)


async def test_more_batches_than_one_answer_holds_are_shown_page_by_page(site: Site) -> None:
    gateway = await site.start(await site.node())
    engine = await gateway.parts.jobs.ready()
    values = [
        {
            "name": f"batch_{number:024x}", "owner": "", "endpoint": "/v1/embeddings",
            "status": "completed", "completion_window": "24h", "input_file": "file-1",
            "created_at": float(number), "expires_at": 0.0,
        }
        for number in range(230)
    ]  # fmt: skip
    write = engine.store.database.write(lambda held: held.execute(insert(batches), values))
    await asyncio.wrap_future(write)
    page = await site.open()
    listed = await unfold(page, "Batches")
    rows = listed.locator("tbody tr")
    for count in (50, 100, 150, 200, 230):
        await expect(rows).to_have_count(count)
        if count < 230:
            await listed.get_by_role("button", name="Show more").click()
    await expect(listed.get_by_role("button", name="Show more")).to_be_hidden()
    assert len(set(await listed.locator("tbody .opener").all_inner_texts())) == 230
    await listed.get_by_label("Show").select_option("cancelling")
    await expect(rows).to_have_count(0)


BATCH = {
    "id": MARKUP, "status": "in_progress", "endpoint": MARKUP, "created_at": 1_790_000_000,
    "request_counts": {"total": 1000, "completed": 412, "failed": 3},
    "models": [MARKUP, "a", "b", "c", "d"],
}  # fmt: skip


async def test_a_batch_of_a_gateway_that_names_no_models_is_listed(site: Site) -> None:
    older = {name: value for name, value in BATCH.items() if name != "models"}
    await site.start(await site.node())
    page = await site.open()
    await page.route(
        "**/v1/batches?*",
        lambda route: route.fulfill(body=json.dumps({"data": [older], "has_more": False})),
    )
    await unfold(page, "Batches")
    rows = page.locator("#batch-list tbody tr")
    await expect(rows).to_contain_text("412 of 1,000 lines")
    await page.locator("#batch-list thead").get_by_role("button", name="Models").click()
    await expect(rows).to_have_count(1)


async def test_a_list_says_that_it_is_read_cannot_be_or_may_not(site: Site) -> None:
    gateway_answers: list[tuple[int, object]] = [(200, {"data": [BATCH], "has_more": False})]
    await site.start(await site.node())
    page = await site.open(clock=True)
    await page.route(
        "**/v1/batches?*",
        lambda route: route.fulfill(
            status=gateway_answers[0][0], body=json.dumps(gateway_answers[0][1])
        ),
    )
    await unfold(page, "Batches")
    batches = page.locator("#batch-list")
    await expect(batches.locator("tbody tr")).to_contain_text("412 of 1,000 lines")
    await expect(batches.locator(".opener")).to_have_text(MARKUP)
    await expect(batches.locator("tbody")).to_contain_text(f"{MARKUP}, a, b +2")
    await expect(batches).to_contain_text("running")
    await batches.get_by_role("button", name="Cancel").click()
    assert await found_by_axe(page) == {}
    await page.set_viewport_size(PHONE["viewport"])
    await page.get_by_label("Language").select_option("ja")
    await page.get_by_label("配色").select_option("dark")
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    assert await found_by_axe(page, "#batch-list") == {}
    gateway_answers[0] = (503, {"error": {"message": "the store is away"}})
    await page.clock.run_for(2_100)
    await expect(batches).to_contain_text("いまは取得できません: the store is away")
    await expect(batches.locator("tbody tr")).to_have_count(1)  # what was known stays
    gateway_answers[0] = (403, {"error": {"message": "no"}})
    await page.clock.run_for(4_100)
    await expect(page.locator("#batch-list")).to_be_hidden()


async def test_a_wall_shows_no_list_and_a_key_its_own(site: Site) -> None:
    await site.start(await site.node(), keys=keys(), server={"public_status": True})
    page = await site.open()
    await expect(page.locator("#nodes .card")).to_have_count(1)
    await expect(page.locator(".lists section:visible")).to_have_count(0)
    await page.get_by_role("button", name="Key…").click()
    await give_key(page, KEY)
    await expect(page.locator("#job-list")).to_be_visible()
    assert not [url for url in site.asked if "/jobs?" in url or "/batches?" in url]


async def test_a_session_is_listed_opened_and_closed(site: Site) -> None:
    await site.start(await site.node())
    client = await RawClient.connect("127.0.0.1", site.port)
    await site.stack.enter_async_context(client)
    await client.post("/session", {"model": "m"}, {})
    made = (await client.reply()).json["sessionId"]
    page = await site.open()
    sessions = await unfold(page, "Sessions")
    row = sessions.locator("tbody tr")
    await expect(row).to_contain_text("idle")
    await row.get_by_role("button", name=made, exact=True).click()
    await expect(page.locator("#detail pre")).to_contain_text(made)
    await page.get_by_role("button", name="Close", exact=True).click()
    await row.get_by_role("button", name=f"Close {made}").click()
    await row.get_by_role("button", name="Yes, close it").click()
    await expect(sessions).to_contain_text("No session is held.")
