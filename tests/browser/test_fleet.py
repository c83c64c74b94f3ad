"""The gateways that share one queue, on the page of one of them.

The fleet is a fake that says what it is told; the gateway and the browser are real.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from harness.shown_fleet import ME, ShownFleet, replica

from .test_looks import PHONE, found_by_axe

if TYPE_CHECKING:
    from playwright.async_api import Page

    from .conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

OTHERS = (
    replica("2c9e01ab", waiting=12, running=3, lent=4),
    replica("7f00d1e2", version="0.7.0", settings="other"),
    replica("9abcde01", state="lost", heard_s=42.0),
)


async def fleet_page(site: Site, **options: Any) -> tuple[ShownFleet, Page]:
    gateway = await site.start(await site.node())
    gateway.parts.membership.fleet = fleet = ShownFleet(*OTHERS, failovers=2)
    next(iter(gateway.parts.nodes)).guarded = True
    page = await site.open(**options)
    await expect(page.locator("#fleet .card")).to_have_count(4)
    return fleet, page


async def test_each_gateway_has_a_card_and_this_one_says_so(site: Site) -> None:
    _, page = await fleet_page(site)
    cards = page.locator("#fleet .card")
    await expect(cards.locator(".state")).to_have_text(
        ["leading", "following", "following", "lost"]
    )
    await expect(cards.locator("h3")).to_have_text([ME, *(one.name for one in OTHERS)])
    await expect(cards.nth(0)).to_contain_text("this one")
    await expect(cards.nth(1)).to_contain_text("12 waiting, 3 running, 4 slots lent")
    await expect(cards.nth(3)).to_contain_text("last heard of 42 s ago")
    await expect(page.locator("#fleet-count")).to_have_text("3 of 4 alive")
    await expect(page.locator("#fleet-mode")).to_have_text("one queue for all")
    await expect(page.locator("#fleet-facts")).to_contain_text("2 changes of leader")


async def test_other_settings_and_other_versions_are_marked_on_the_card(site: Site) -> None:
    _, page = await fleet_page(site)
    odd = page.locator("#fleet .card", has_text="7f00d1e2")
    await expect(odd.get_by_text("other settings")).to_be_visible()
    await expect(odd.locator(".skewed")).to_have_text("0.7.0")
    await expect(page.locator("#fleet .skewed")).to_have_count(1)
    await expect(page.locator("#fleet").get_by_text("other settings")).to_have_count(4)
    shown = page.locator("#fleet .badge:not(.calm):visible")
    await expect(shown).to_have_count(1)


@pytest.mark.parametrize(
    ("mode", "words", "japanese", "banner"),
    [
        ("alone", "alone: the store is unreachable", "単独動作中", "each gateway works alone"),
        ("cut_off", "cut off: nothing new starts here", "切り離し中", "has been cut off"),
        ("seeking", "looking for a leader", "リーダーを選出中", ""),
    ],
)
async def test_a_fleet_in_trouble_says_so_in_words(
    site: Site, mode: str, words: str, japanese: str, banner: str
) -> None:
    fleet, page = await fleet_page(site)
    lost = page.locator("#troubles").get_by_text("1 of 4 gateways has sent no heartbeat")
    await expect(lost).to_be_visible()
    fleet.change(mode=mode)
    await expect(page.locator("#fleet-mode")).to_have_text(words)
    await expect(lost).to_have_count(0)
    if banner:
        await expect(page.locator("#troubles .what")).to_contain_text(banner)
        states = [mode.replace("_", " "), "out of sight", "out of sight", "lost"]
        await expect(page.locator("#fleet .state")).to_have_text(states)
        await expect(page.locator("#fleet .replica-work:visible")).to_have_count(0)
    await page.get_by_label("Language").select_option("ja")
    await expect(page.locator("#fleet-mode")).to_contain_text(japanese)
    for text in await page.locator("#troubles .what").all_inner_texts():
        assert re.search("[ぁ-ん]", text)


async def test_a_gateway_on_its_own_has_no_fleet_and_shows_none(site: Site) -> None:
    await site.start(await site.node())
    page = await site.open()
    await expect(page.locator("#nodes .card")).to_have_count(1)
    await expect(page.locator("#fleet")).to_be_hidden()
    await expect(page.locator("#nodes").get_by_text("guarded")).to_be_hidden()


async def test_the_slots_of_a_node_say_why_they_are_as_many(site: Site) -> None:
    await site.start(await site.node(slots=3))
    page = await site.open()
    slots = page.locator("#nodes .card [title*='it runs 3 at once']")
    await expect(slots).to_contain_text("0 of 3 slots in use")
    await page.get_by_label("Language").select_option("ja")
    await expect(slots).to_have_attribute("title", re.compile("3 スロット"))


async def test_a_guarded_node_says_so_on_its_card(site: Site) -> None:
    _, page = await fleet_page(site)
    badge = page.locator("#nodes .card").get_by_text("guarded", exact=True)
    await expect(badge).to_be_visible()
    await expect(badge).to_have_attribute("title", re.compile("exactly its slots"))


async def test_axe_finds_nothing_wrong_with_a_fleet_and_nothing_is_too_wide(site: Site) -> None:
    _, page = await fleet_page(site)
    assert await found_by_axe(page) == {}
    await page.get_by_label("Colours").select_option("dark")
    await page.get_by_label("Language").select_option("ja")
    for width in (320, PHONE["viewport"]["width"], 768, 1280):
        await page.set_viewport_size({"width": width, "height": 800})
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
    assert await found_by_axe(page, "#fleet") == {}
