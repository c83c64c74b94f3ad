"""What is seen first: troubles, figures, nodes and models; and nothing before a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from .conftest import OK
from .test_live import figure
from .test_looks import PHONE, found_by_axe
from .test_nodes import ADMIN_KEY, give_key, keys

if TYPE_CHECKING:
    from playwright.async_api import Locator

    from .conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def bottom_of(part: Locator) -> float:
    box = await part.bounding_box()
    assert box is not None
    return box["y"] + box["height"]


async def test_nodes_and_models_are_in_sight_and_charts_beside_each_other(site: Site) -> None:
    nodes = [await site.node(models=("m", f"model-{i}")) for i in range(3)]
    await nodes[2].stop_listening()
    await site.start(*nodes)
    await (await site.hold(nodes[0], model="model-0")).answer(OK)
    page = await site.open()
    await expect(page.locator("#troubles li").first).to_contain_text("gpu3")
    await expect(page.locator("#nodes .card")).to_have_count(3)
    for width, height in ((1280, 800), (1920, 1080)):
        await page.set_viewport_size({"width": width, "height": height})
        for part in ("#troubles", "#tiles", "#nodes", "#models"):
            assert await bottom_of(page.locator(part)) <= height
        tops = [await bottom_of(page.locator(".figure").nth(i)) for i in range(3)]
        assert len(set(tops)) == 1
    assert await bottom_of(page.locator("#timeline")) <= 1080
    await page.set_viewport_size(PHONE["viewport"])
    tops = [await bottom_of(page.locator(".figure").nth(i)) for i in range(3)]
    assert len(set(tops)) == 3


async def test_many_nodes_and_troubles_leave_the_table_in_sight_and_axe_content(site: Site) -> None:
    nodes = [await site.node() for _ in range(12)]
    gateway = await site.start(*nodes)
    for node in gateway.parts.nodes:
        node.drain()
        node.failed("status", "m", "", 0.0)
    page = await site.open()
    await page.set_viewport_size({"width": 1280, "height": 800})
    await expect(page.locator("#troubles li:visible")).to_have_count(3)
    await expect(page.locator("#nodes-table tbody tr")).to_have_count(12)
    assert await bottom_of(page.locator("#nodes")) <= 800
    assert await found_by_axe(page) == {}
    await page.locator("#troubles-more").click()
    await expect(page.locator("#troubles li:visible")).to_have_count(8)
    await page.set_viewport_size(PHONE["viewport"])
    await page.get_by_label("Language").select_option("ja")
    await page.get_by_label("配色").select_option("dark")
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    assert await found_by_axe(page) == {}


async def test_tokens_and_first_tokens_are_figures_and_try_it_folds_after_traffic(
    site: Site,
) -> None:
    node = await site.node()
    gateway = await site.start(node)
    page = await site.open()
    await expect(page.get_by_label("Message", exact=True)).to_be_visible()
    await expect(page.locator(".tile-tokens_second")).to_contain_text("none in the last minute")
    next(iter(gateway.parts.nodes)).failed("status", "m", "", 0.0)
    call = await site.hold(node, stream=True)
    await call.start_stream()
    await call.chunk(b'data: {"usage": {"prompt_tokens": 3, "completion_tokens": 5000}}\n\n')
    await call.chunk(b"data: [DONE]\n\n")
    await call.end()
    await expect(page.get_by_label("Message", exact=True)).to_be_hidden()
    await expect(figure(page, "tokens_second")).not_to_have_text("\N{EN DASH}")
    await expect(figure(page, "first_token")).to_contain_text("s")
    await expect(page.locator("#nodes .failures")).to_have_text(
        "Failures in 15 min: server error 1"
    )
    await page.locator("#try-title").click()
    await expect(page.get_by_label("Message", exact=True)).to_be_visible()


async def test_before_a_key_nothing_is_claimed_and_afterwards_links_and_hints_work(
    site: Site,
) -> None:
    node = await site.node()
    await node.stop_listening()
    await site.start(node, keys=keys())
    page = await site.blank()
    await page.goto(site.url)
    await expect(page.get_by_text("This gateway asks for a key.")).to_be_visible()
    await expect(page.locator("#shown")).to_be_hidden()
    await expect(page.locator("#links")).to_be_hidden()
    await give_key(page, ADMIN_KEY)
    command = f"forebay nodes remove gpu1 --url {site.url} --key-env FOREBAY_API_KEY"
    await expect(page.locator("#troubles")).to_contain_text(command)
    await page.get_by_role("link", name="Queue as JSON").click()
    await expect(page.locator("body")).to_contain_text('"max_size":')
    assert site.asked.pop().startswith(f"blob:{site.url}")
