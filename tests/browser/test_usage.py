"""Who uses the gateway: the table of users, and the usage of a day as a chart, a table and CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from forebay.clock import SystemClock

from .conftest import OK
from .test_lists import unfold
from .test_looks import COLOURS, PHONE, found_by_axe
from .test_safety import MARKUP

if TYPE_CHECKING:
    from playwright.async_api import Route

    from .conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def usage(route: Route) -> None:
    """Answer as `GET /v1/usage` does: two users, in the hour that it is now."""
    if "format=csv" in route.request.url:
        await route.fulfill(content_type="text/csv", body="hour,key,user\n")
        return
    rows = [
        {
            "hour": SystemClock().utc().strftime("%Y-%m-%dT%H:00:00Z"),
            "user": user,
            "model": user,
            "requests": 2,
            "prompt_tokens": tokens,
            "output_tokens": tokens,
        }
        for user, tokens in (("ann", 300), (MARKUP, 100))
    ]
    await route.fulfill(json={"data": rows})


async def test_users_are_listed_with_what_they_wait_for_and_their_share(site: Site) -> None:
    node = await site.node(slots=1)
    await site.start(node)
    held = await site.hold(node, user="ben")
    await site.ask(user="ben")
    waiting = await site.ask(user="ann")
    page = await site.open()
    await page.route("**/v1/usage?*", usage)
    users = await unfold(page, "Users")
    rows = users.locator("tbody tr")
    cells = rows.nth(0).locator("td:not(:last-child)")
    await expect(cells).to_have_text(["1", "1", "0", "0", "0%"])
    cells = rows.nth(1).locator("td:not(:last-child)")
    await expect(cells).to_have_text(["1", "0", "2", "600", "75%"])
    await expect(rows.locator("th")).to_have_text(["ben", "ann", MARKUP])
    await rows.nth(1).get_by_role("button", name="Cancel all 1 waiting of ann").click()
    await rows.nth(1).get_by_role("button", name="Yes, cancel it").click()
    await expect(cells.first).to_have_text("0")
    assert (await waiting.reply()).status >= 400
    await users.locator("summary").click()
    used = await unfold(page, "Usage")
    await expect(used.locator("tbody tr").nth(0).locator("td")).to_have_text(["2", "300", "300"])
    await expect(used.locator(".chart .bar.served")).not_to_have_attribute("d", "M0 0")
    await used.get_by_label("Show").select_option("by model")
    await expect(used.locator("tbody th")).to_have_text(["ann", MARKUP])
    async with page.expect_download() as saved:
        await used.get_by_role("link", name="As CSV").click()
    assert (await saved.value).suggested_filename == "usage.csv"
    assert await found_by_axe(page) == {}
    await page.set_viewport_size(PHONE["viewport"])
    await page.get_by_label("Colours").select_option("dark")
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    assert await found_by_axe(page, ".lists", rules=COLOURS) == {}
    await held.answer(OK)
