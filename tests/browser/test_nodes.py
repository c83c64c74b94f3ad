"""The cards of the nodes, and what admins and others may do with them."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from forebay.testing import FakeNode

from .conftest import OK

if TYPE_CHECKING:
    from playwright.async_api import Page

    from forebay.gateway.gateway import Gateway

    from .conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEY, ADMIN_KEY = "only-for-tests-of-the-page", "only-for-tests-of-the-page-admin"


def keys() -> list[dict[str, Any]]:
    return [
        {"name": name, "key_sha256": hashlib.sha256(key.encode()).hexdigest(), "admin": admin}
        for name, key, admin in (("team", KEY, False), ("boss", ADMIN_KEY, True))
    ]


def states(gateway: Gateway) -> list[str]:
    """What the gateway itself says of its nodes."""
    return [backend.told.state for backend in gateway.parts.nodes]


async def give_key(page: Page, key: str) -> None:
    field = page.locator("#key-form").get_by_label("key")
    await field.fill(key)
    await field.press("Enter")


async def test_the_drain_button_drains_for_real_and_resume_brings_the_node_back(site: Site) -> None:
    node = await site.node()
    gateway = await site.start(node)
    page = await site.open()
    card = page.locator("#nodes .card")
    await card.get_by_role("button", name="Drain gpu1").click()
    await expect(card).to_contain_text("Nothing new will start on gpu1.")
    await card.get_by_role("button", name="Cancel").click()
    await expect(card.get_by_role("button", name="Drain gpu1")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(card.get_by_role("button", name="Yes, drain it")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(card.locator(".state")).to_have_text("draining")
    assert states(gateway) == ["draining"]
    await card.get_by_role("button", name="Resume gpu1").click()
    await expect(card.locator(".state")).to_have_text("online")
    assert states(gateway) == ["online"]
    await (await site.hold(node)).answer(OK)


async def test_a_card_says_how_fast_its_node_is_once_it_was_measured(site: Site) -> None:
    nodes = [await site.node(slots=1) for _ in range(2)]
    await site.start(*nodes)
    page = await site.open()
    cards = page.locator("#nodes .card")
    await expect(cards).to_have_count(2)
    await expect(cards.filter(has_text="usual")).to_have_count(0)
    clients = [await site.ask() for _ in nodes]
    for call in [await node.next_call() for node in nodes]:
        await call.answer(OK)
    for client in clients:
        assert (await client.reply()).status == 200
    measured = re.compile(r"Speed \d+\.\d\d . usual, measured \d+ s ago")
    await expect(cards.filter(has_text=measured)).to_have_count(2)


async def test_a_refused_drain_says_why_on_the_card(site: Site) -> None:
    gateway = await site.start(await site.node())
    page = await site.open()
    card = page.locator("#nodes .card")
    await card.get_by_role("button", name="Drain gpu1").click()
    answer = {"status": 403, "json": {"error": {"message": "this needs an admin key"}}}
    await page.route("**/admin/**", lambda route: route.fulfill(**answer))
    await card.get_by_role("button", name="Yes, drain it").click()
    await expect(card.get_by_role("alert")).to_contain_text("this needs an admin key")
    await expect(card.get_by_role("button", name="Drain gpu1")).to_be_enabled()
    assert states(gateway) == ["online"]


async def test_a_gateway_with_keys_asks_for_one_and_goes_on(site: Site) -> None:
    await site.start(await site.node(), keys=keys())
    page = await site.blank()
    await page.goto(site.url)
    await expect(page.get_by_text("This gateway asks for a key.")).to_be_visible()
    forget = page.get_by_role("button", name="Forget it")
    await expect(forget).to_be_hidden()
    await give_key(page, "not-a-key")
    await expect(page.get_by_text("The gateway does not know this key.")).to_be_visible()
    await expect(forget).to_be_visible()
    await give_key(page, KEY)
    await expect(page.locator(".tile-waiting")).to_be_visible()
    await expect(page.locator("#key-form")).to_be_hidden()
    await expect(page.locator("#try-model")).to_have_value("m")
    stored = await page.evaluate("[Object.values(localStorage), document.cookie].join('')")
    assert KEY not in stored
    await expect(page.locator("#nodes .card .state")).to_have_text("online")
    await expect(page.get_by_role("button", name="Drain gpu1")).to_have_count(0)


async def test_an_admin_key_given_later_brings_the_buttons(site: Site) -> None:
    await site.start(await site.node(), keys=keys(), server={"public_status": True})
    page = await site.open()
    await expect(page.get_by_role("button", name="Drain gpu1")).to_have_count(0)
    await page.get_by_role("button", name="Key…").click()
    await give_key(page, ADMIN_KEY)
    await expect(page.get_by_role("button", name="Drain gpu1")).to_be_visible()
    await page.get_by_role("button", name="Key…").click()
    await page.get_by_role("button", name="Forget it").click()
    await expect(page.get_by_role("button", name="Drain gpu1")).to_have_count(0)


async def test_with_many_nodes_one_is_found_by_name_and_by_state(site: Site) -> None:
    nodes = [await site.node(models=(f"model-{i}",)) for i in range(13)]
    await nodes[4].stop_listening()
    await site.start(*nodes)
    page = await site.open()
    rows = page.locator("#nodes-table tbody tr")
    await expect(rows).to_have_count(13)
    await expect(rows.first).to_contain_text("Connection refused")
    in_order = ["gpu5", *(f"gpu{i + 1}" for i in range(13) if i != 4)]  # 2 before 10
    await expect(page.locator("#nodes .node-name")).to_have_text(in_order)
    await page.get_by_role("button", name="Node", exact=True).click()
    await expect(page.locator("#nodes .node-name").nth(4)).to_have_text("gpu5")
    sorted_by = page.get_by_role("columnheader", name="Node")
    await expect(sorted_by).to_have_attribute("aria-sort", "ascending")
    await rows.nth(1).get_by_role("button", name="Drain gpu2").click()
    await page.get_by_role("button", name="Yes, drain it").click()
    await expect(rows.nth(1).locator(".state")).to_have_text("draining")
    find = page.locator("#nodes").get_by_label("Find")
    await find.fill("model-11")
    await expect(page.locator("#nodes .node-name")).to_have_text(["gpu12"])
    await find.fill("offline")
    await expect(page.locator("#nodes .node-name")).to_have_text(["gpu5"])
    await find.fill("no such thing")
    await expect(page.get_by_text("No node has that in its name")).to_be_visible()


async def test_slots_are_cells_and_loaded_models_stand_out(site: Site) -> None:
    small, large = FakeNode(("a", "b"), slots=3, kind="ollama"), FakeNode(slots=40)
    small.loaded = ("b",)
    for node in (small, large):
        await site.stack.enter_async_context(node)
    await site.start(small, large)
    page = await site.open()
    first, second = page.locator("#nodes .card").nth(0), page.locator("#nodes .card").nth(1)
    await expect(first.locator(".chip.loaded .unseen")).to_have_text("b, loaded")
    await expect(second.locator(".cells.as-bar i")).to_have_count(1)
    await expect(second).to_contain_text("0 of 40 slots in use")


async def test_a_card_says_what_the_cache_has_room_for(site: Site) -> None:
    gateway = await site.start(await site.node())
    page = await site.open()
    room = page.locator("#nodes .card .cache-room")
    await expect(room).to_be_hidden()
    backend = gateway.parts.nodes.get("gpu1")
    assert backend is not None
    backend.heard(1, None, 52_000)
    await expect(room).to_have_text("52,000 tokens free in its key-value cache")
