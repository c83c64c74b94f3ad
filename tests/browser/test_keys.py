"""The keys of the gateway on its page: listed, made and revoked by admins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from forebay.testing import RawClient

from .test_lists import unfold
from .test_looks import PHONE, found_by_axe
from .test_nodes import ADMIN_KEY, KEY, give_key, keys

if TYPE_CHECKING:
    from .conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def status_with(site: Site, key: str) -> int:
    """What the list of keys answers to who has this key."""
    client = await RawClient.connect("127.0.0.1", site.port)
    await site.stack.enter_async_context(client)
    await client.get("/admin/keys", {"Authorization": f"Bearer {key}"} if key else {})
    return (await client.reply()).status


async def test_an_admin_sees_the_keys_and_revokes_one_that_was_made(site: Site) -> None:
    await site.start(await site.node(), keys=keys())
    client = await RawClient.connect("127.0.0.1", site.port)
    await site.stack.enter_async_context(client)
    admin = {"Authorization": f"Bearer {ADMIN_KEY}"}
    await client.post("/admin/keys", {"name": "made"}, admin)
    assert (await client.reply()).status == 201
    page = await site.blank()
    await page.goto(site.url)
    await give_key(page, KEY)
    await expect(page.locator("#job-list")).to_be_visible()
    await expect(page.locator("#key-list")).to_be_hidden()
    await page.get_by_role("button", name="Key…").click()
    await give_key(page, ADMIN_KEY)
    listed = await unfold(page, "Keys")
    rows = listed.locator("tbody tr")
    await expect(rows.locator("th")).to_have_text(["team", "boss", "made"])
    await expect(listed.get_by_role("button", name="Revoke")).to_have_count(1)
    await rows.nth(2).get_by_role("button", name="Revoke made").click()
    await rows.nth(2).get_by_role("button", name="Yes, revoke it").click()
    await expect(rows).to_have_count(2)


async def test_keys_are_made_on_the_page_and_shown_once(site: Site) -> None:
    await site.start(await site.node())
    page = await site.blank()
    await page.goto(site.url)
    await unfold(page, "Keys")
    listed = page.locator("#key-list")  # whatever its heading says
    dialog = page.get_by_role("dialog", name="New key")
    await listed.get_by_role("button", name="New key…").click()
    await expect(dialog).to_contain_text("This is the first key")
    await expect(dialog.get_by_label("Admin")).to_be_disabled()
    await page.keyboard.type("not a name")
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_role("alert")).to_contain_text("That did not work: ")
    assert await found_by_axe(page) == {}
    await dialog.get_by_label("Name", exact=True).fill("boss")
    await page.keyboard.press("Enter")
    await expect(dialog).to_contain_text("The key boss works now.")
    text = page.locator("#new-key-text")
    boss = await text.inner_text()
    await page.keyboard.press("Escape")
    await page.keyboard.press("Enter")  # the button that copies has the focus
    await expect(dialog.get_by_role("button", name="Copied")).to_be_visible()
    assert (await status_with(site, boss), await status_with(site, "")) == (200, 401)
    assert await found_by_axe(page, "dialog") == {}
    await dialog.get_by_role("button", name="Close").click()
    await expect(text).to_be_empty()
    rows = listed.locator("tbody tr")
    await expect(rows.locator("th")).to_have_text(["boss"])  # this tab uses it


async def test_a_key_is_made_on_a_phone_with_every_setting_and_revoked(site: Site) -> None:
    await site.start(await site.node(), keys=keys())
    page = await site.blank()
    await page.goto(site.url)
    await give_key(page, ADMIN_KEY)
    await unfold(page, "Keys")
    listed = page.locator("#key-list")  # whatever its heading says
    rows = listed.locator("tbody tr")
    await page.set_viewport_size(PHONE["viewport"])
    await page.get_by_label("Language").select_option("ja")
    await page.get_by_label("配色").select_option("dark")
    await listed.get_by_role("button", name="新しいキー…").click()
    await expect(page.locator("#new-key-first")).to_be_hidden()
    form = page.locator("#new-key-form")
    await form.locator("summary").click()
    asked = {
        "name": "ann", "user": "ann", "models": "m, other", "max_running": "3",
        "requests_per_minute": "60", "tokens_per_minute": "5000", "tokens_per_day": "90000",
        "weight": "2.5",
    }  # fmt: skip
    for name, value in asked.items():
        await form.locator(f"[name={name}]").fill(value)
    await form.locator("[name=max_priority]").select_option("normal")
    await form.get_by_label("リクエストが利用者名を指定できる").check()
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    assert await found_by_axe(page) == {}
    async with page.expect_response(lambda got: got.request.method == "POST") as answered:
        await form.get_by_role("button", name="キーを作る").click()
    made = await (await answered.value).json()
    assert {name: made[name] for name in asked} == {
        "name": "ann", "user": "ann", "models": ["m", "other"], "max_running": 3,
        "requests_per_minute": 60, "tokens_per_minute": 5000, "tokens_per_day": 90000,
        "weight": 2.5,
    }  # fmt: skip
    rest = (made["max_priority"], made["trust_user"], made["admin"], made["created_by"])
    assert rest == ("normal", True, False, "boss")
    await page.get_by_role("dialog").get_by_role("button", name="閉じる").click()
    await expect(rows.locator("th")).to_have_text(["team", "boss", "ann"])
    limits = "同時 3, 60 リクエスト/分, 5,000 トークン/分, 90,000 トークン/日, 重み 2.5"
    await expect(rows.nth(2)).to_contain_text(limits)
    await expect(rows.nth(2)).to_contain_text("ann/*")
    await rows.nth(2).get_by_role("button", name="ann を失効させる").click()
    await rows.nth(2).get_by_role("button", name="はい、失効させます").click()
    await expect(rows).to_have_count(2)
    assert await status_with(site, made["key"]) == 401


async def test_a_limit_that_is_no_number_is_shown_where_it_is_even_when_folded(site: Site) -> None:
    await site.start(await site.node())
    page = await site.blank()
    await page.goto(site.url)
    await (await unfold(page, "Keys")).get_by_role("button", name="New key…").click()
    dialog = page.get_by_role("dialog", name="New key")
    await dialog.get_by_label("Name", exact=True).fill("boss")
    folded = dialog.locator("details")
    await folded.locator("summary").click()
    await dialog.get_by_label("Weight").fill("0")
    await folded.locator("summary").click()
    await dialog.get_by_role("button", name="Make the key").click()
    await expect(dialog.get_by_label("Weight")).to_be_focused()
