"""The try-it panel: the place in line, the count-down, the tokens."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from .conftest import stream
from .test_nodes import KEY, give_key, keys

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Locator, Page

    from .conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def open_try_it(page: Page) -> None:
    """Unfold the panel, and be at it: so it stays open, whatever others ask."""
    await page.evaluate(
        """() => {
          document.getElementById("try-fold").open = true;
          document.getElementById("try-message").focus();
        }"""
    )


async def send(page: Page, message: str, copies: int = 1) -> Locator:
    """Write a message, send it with the Enter key, and return the cards."""
    await expect(page.locator("#try-model")).not_to_have_value("")
    await open_try_it(page)
    await page.get_by_label("At once").select_option(str(copies))
    field = page.get_by_label("Message", exact=True)
    await field.fill(message)
    await field.press("Enter")
    return page.locator("#tries .attempt")


async def test_a_real_llama_cpp_streams_its_answer_into_the_page(
    site: Site, tiny_gguf: Path
) -> None:
    await site.serve("--gguf", str(tiny_gguf))
    page = await site.open()
    cards = await send(page, "Is the queue waiting?")
    await expect(cards.locator(".attempt-status")).to_have_text("Completed")
    await expect(cards.locator(".attempt-answer")).to_have_text(re.compile(r"\w+"))
    await expect(cards.locator(".attempt-note")).to_have_text(re.compile("on .* first token after"))


async def test_those_sent_at_once_get_places_and_move_up(site: Site) -> None:
    node = await site.node()
    await site.start(node)
    page = await site.open()
    cards = await send(page, "Hello", copies=3)
    call = await node.next_call()
    assert call.json["max_tokens"] == 200
    status = cards.locator(".attempt-status")
    await expect(status.filter(has_text="1st in line")).to_have_count(1)
    await expect(status.filter(has_text="2nd in line")).to_have_count(1)
    await expect(cards.filter(has_text="every slot that could serve it is taken")).to_have_count(2)
    await expect(page.locator(".tile-waiting .figure-large")).to_have_text("2")
    await stream(call, "The", " first")
    second = await node.next_call()
    await expect(status.filter(has_text="2nd in line")).to_have_count(0)
    await expect(status.filter(has_text="1st in line")).to_have_count(1)
    await expect(status.filter(has_text=re.compile("about|any moment"))).to_have_count(1)
    await stream(second, "The second")
    await stream(await node.next_call(), "The third")
    await expect(status).to_have_text(["Completed"] * 3)
    answers = await cards.locator(".attempt-answer").all_inner_texts()
    assert sorted(answers) == ["The first", "The second", "The third"]
    waited = cards.locator(".attempt-note").filter(has_text="waited")
    await expect(waited).to_have_count(2)


async def test_one_that_waits_for_a_better_node_says_which_and_what_that_gains(site: Site) -> None:
    node = await site.node()
    await site.start(node)
    page = await site.open()
    held = await site.hold(node)
    better = {
        "node": "gpu2", "why": "speed", "seconds_gained": 3.2, "seconds_left": 5.0,
        "times_as_fast": 4.0, "cached_tokens": 6100, "prompt_tokens": 6400,
    }  # fmt: skip
    told = {
        "state": "waiting", "position": 1, "estimated_wait_seconds": {"p50": None, "p90": None},
        "reason_code": "better_node", "better_node": better,
    }  # fmt: skip
    await page.route("**/v1/queue/*", lambda route: route.fulfill(json=told))
    note = (await send(page, "Hello")).locator(".attempt-note")
    begin = "waits for gpu2, up to 5 s, to end 3.2 s sooner: "
    await expect(note).to_have_text(
        f"{begin}it is 4.0 \N{MULTIPLICATION SIGN} as fast as what is free"
    )
    better["why"] = "prompt"
    await expect(note).to_have_text(f"{begin}6,100 of 6,400 prompt tokens are cached there")
    better["why"] = "memory"
    await expect(note).to_have_text(f"{begin}its model is in memory there")
    await held.answer({})
    await stream(await node.next_call(), "Thanks")


async def test_stop_gives_the_slot_and_the_place_back(site: Site) -> None:
    node = await site.node()
    await site.start(node)
    page = await site.open()
    cards = await send(page, "Hello", copies=2)
    call = await node.next_call()
    await expect(cards.filter(has_text="1st in line")).to_have_count(1)
    await page.get_by_role("button", name="Stop").click()
    await expect(cards.locator(".attempt-status")).to_have_text(["Stopped"] * 2)
    await call.gone()
    await expect(page.locator(".tile-waiting .figure-large")).to_have_text("0")
    await expect(page.locator(".tile-processing .figure-large")).to_have_text("0")


async def test_a_refusal_is_shown_with_its_code_and_when_to_come_back(site: Site) -> None:
    node = await site.node()
    await site.start(node, queue={"max_size": 0})
    page = await site.open()
    held = await site.hold(node)
    cards = await send(page, "Hello")
    await expect(cards).to_contain_text("queue_disabled")
    await expect(cards).to_contain_text("try again in")
    await held.answer({})


async def test_an_answer_that_breaks_off_says_so_and_keeps_what_came(site: Site) -> None:
    node = await site.node()
    await site.start(node)
    page = await site.open()
    cards = await send(page, "Hello")
    call = await node.next_call()
    await call.start_stream()
    await call.chunk(b'data: {"choices": [{"delta": {"content": "Half an"}}]}\n\n')
    await expect(cards.locator(".attempt-answer")).to_have_text("Half an")
    call.reset()
    await expect(cards.locator(".attempt-status")).to_have_text("Not answered")
    await expect(cards).to_contain_text("node_failed")
    await expect(cards.locator(".attempt-answer")).to_have_text("Half an")


async def test_while_comments_come_the_place_is_read_from_them(site: Site) -> None:
    node = await site.node()
    await site.start(node, queue={"keepalive_seconds": 0.2})
    page = await site.open()
    held = await site.hold(node)
    await page.route("**/v1/queue/*", lambda route: route.abort())
    cards = await send(page, "Hello")
    await expect(cards.locator(".attempt-status")).to_contain_text("1st in line")
    await held.answer({})
    await stream(await node.next_call(), "Thanks")
    await expect(cards.locator(".attempt-status")).to_have_text("Completed")
    await expect(cards.locator(".attempt-note")).to_contain_text("on gpu1 · waited")


async def test_the_key_of_the_page_and_the_chosen_priority_go_along(site: Site) -> None:
    node = await site.node()
    await site.start(node, keys=keys())
    page = await site.blank()
    await page.goto(site.url)
    await give_key(page, KEY)
    await expect(page.locator("#try-model")).to_have_value("m")
    await page.locator("#try").get_by_label("Priority").select_option("low")
    async with page.expect_request("**/v1/chat/completions") as sent:
        cards = await send(page, "Hello")
    headers = (await sent.value).headers
    assert headers["x-forebay-priority"] == "low"
    assert headers["authorization"] == f"Bearer {KEY}"
    await stream(await node.next_call(), "Hi")
    await expect(cards.locator(".attempt-answer")).to_have_text("Hi")


async def test_enter_sends_and_shift_enter_and_composing_do_not(site: Site) -> None:
    node = await site.node()
    await site.start(node)
    page = await site.open()
    await expect(page.locator("#try-model")).not_to_have_value("")
    field = page.get_by_label("Message", exact=True)
    await field.fill("one")
    await field.press("Shift+Enter")
    await field.press("t")
    compose = "new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true})"
    await field.evaluate(f"field => field.dispatchEvent({compose})")
    await field.press("Enter")
    call = await node.next_call()
    assert json.loads(call.body)["messages"] == [{"role": "user", "content": "one\nt"}]
    await stream(call, "Two")
    await expect(page.locator("#tries .attempt-status")).to_have_text("Completed")


@pytest.mark.parametrize("how", ["keyboard", "mouse"])
async def test_what_is_typed_first_takes_the_place_of_the_example(site: Site, how: str) -> None:
    await site.start(await site.node())
    page = await site.open()
    field = page.get_by_label("Message", exact=True)
    assert await field.input_value() != ""
    await (field.focus() if how == "keyboard" else field.click())
    await page.keyboard.type("Mine")
    await expect(field).to_have_value("Mine")
    await page.get_by_label("At once").focus()
    await (field.focus() if how == "keyboard" else field.click())
    await page.keyboard.press("End")
    await page.keyboard.type(", all of it")  # what somebody wrote is never replaced
    await expect(field).to_have_value("Mine, all of it")


async def test_a_second_click_puts_the_caret_where_it_is_wanted(site: Site) -> None:
    await site.start(await site.node())
    page = await site.open()
    field = page.get_by_label("Message", exact=True)
    example = await field.input_value()
    await field.click()
    await field.click()
    await page.keyboard.press("End")
    await page.keyboard.type("!")
    assert len(await field.input_value()) == len(example) + 1


async def test_no_more_than_eight_messages_are_kept(site: Site) -> None:
    node = await site.node(slots=4)
    node.automatic = lambda call: stream(call, "Yes")
    await site.start(node)
    page = await site.open()
    for batch in range(1, 4):
        cards = await send(page, f"Batch {batch}", copies=4)
        await expect(cards.locator(".attempt-status")).to_have_text(
            ["Completed"] * min(8, 4 * batch)
        )
    await expect(cards.locator("h3").first).to_have_text("Message 9")
