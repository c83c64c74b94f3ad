"""What comes from outside stays text, and nothing that is not ours runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from .conftest import stream
from .test_try_it import send

if TYPE_CHECKING:
    from playwright.async_api import Route

    from .conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

MARKUP = "<img src=x onerror=window.broken=1><script>window.broken=1</script>"


async def test_markup_in_the_name_of_a_model_and_in_its_answer_is_shown_as_text(site: Site) -> None:
    node = await site.node(models=(MARKUP,))
    await site.start(node)
    page = await site.open()
    await expect(page.locator("#models .model-name")).to_have_text(MARKUP)
    await expect(page.locator("#curl")).to_contain_text("onerror")
    cards = await send(page, MARKUP)
    await stream(await node.next_call(), MARKUP)
    await expect(cards.locator(".attempt-answer")).to_have_text(MARKUP)
    assert await page.evaluate("[window.broken, document.images.length]") == [None, 0]


async def test_markup_anywhere_in_a_snapshot_is_shown_as_text(site: Site) -> None:
    await site.start(await site.node())
    page = await site.open()
    hello, snapshot = await page.evaluate(READ_EVENTS)
    soil(snapshot)

    async def answer(route: Route) -> None:
        events = [("hello", hello), ("snapshot", snapshot)]
        body = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events)
        await route.fulfill(content_type="text/event-stream", body=body)

    await page.route("**/events", answer)
    await page.reload()
    for place in (
        "#troubles .what", "#troubles .advice", "#caption", "#problems code", "#problems .advice",
        "#jobs b >> nth=0", "#nodes .node-name", "#nodes .last-error", "#models .model-name",
    ):  # fmt: skip
        await expect(page.locator(place)).to_contain_text(MARKUP)
    assert await page.evaluate("[window.broken, document.images.length]") == [None, 0]


def soil(snapshot: dict[str, Any]) -> None:
    """Write markup wherever a text comes from outside."""
    both = {"en": MARKUP, "ja": MARKUP}
    snapshot["caption"] = both
    snapshot["troubles"] = [{"level": "error", "code": MARKUP, "text": both, "advice": both}]
    snapshot["problems"] = [
        {"code": MARKUP, "kind": "error", "last_minute": 1, "last_15_minutes": 1, "total": 1,
         "seconds_ago": 1.0, "remedy": both},
    ]  # fmt: skip
    counts = dict.fromkeys(("queued", "running", "completed", "failed", "cancelled"), 1)
    snapshot["jobs"]["types"] = [{"type": MARKUP, **counts}]
    (node,) = snapshot["nodes"]
    node.update(name=MARKUP, kind=MARKUP, last_error=MARKUP, failures_15_minutes={MARKUP: 1})
    node.update(models=[MARKUP], loaded=[MARKUP], failing=[MARKUP])
    snapshot["models"][0].update(model=MARKUP, families=[MARKUP])


READ_EVENTS = """async () => {
  const reader = (await fetch("/events")).body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (!text.includes("event: snapshot") || !text.endsWith("\\n\\n")) {
    text += (await reader.read()).value;
  }
  await reader.cancel();
  const events = text.split("\\n\\n").flatMap((event) => event.match(/^data: (.*)$/m)?.[1] ?? []);
  return events.slice(0, 2).map((data) => JSON.parse(data));
}"""


async def test_a_script_that_is_not_ours_does_not_run(site: Site) -> None:
    await site.start(await site.node())
    page = await site.open()
    await page.evaluate(
        """() => {
          const script = document.createElement("script");
          try { script.textContent = "window.broken = 1"; } catch { /* not even that is allowed */ }
          document.body.append(script);
        }"""
    )
    made = await page.evaluate(
        "() => { try { document.body.innerHTML = '<p>'; return true; } catch { return false; } }"
    )
    assert [made, await page.evaluate("window.broken")] == [False, None]
    assert site.complaints  # the policy has been heard of
    site.complaints.clear()


async def test_the_page_asks_for_its_own_files_and_routes_only(site: Site) -> None:
    node = await site.node()
    await site.start(node)
    page = await site.open()
    cards = await send(page, "Hello")
    await stream(await node.next_call(), "Hi")
    await expect(cards.locator(".attempt-status")).to_have_text("Completed")
    assert {url.removeprefix(site.url).split("/")[1] for url in site.asked} == {
        "", "dashboard", "events", "v1",
    }  # fmt: skip
