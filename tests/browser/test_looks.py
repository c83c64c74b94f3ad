"""How the page looks and reads: phone, dark, Japanese, keyboard, and what axe has to say."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]  # has none
from playwright.async_api import expect

from .conftest import stream
from .test_try_it import open_try_it, send

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playwright.async_api import Page

    from .conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

STATIC = Path(__file__).parents[2] / "src/forebay/dashboard/static"
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "has_touch": True,
    "is_mobile": True,
}
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
COLOURS = ("color-contrast", "link-in-text-block")
"""The rules that other colours can break."""
RUN_AXE = """([part, rules]) =>
  axe.run(part, { runOnly: rules, resultTypes: ["violations"] }).then(({ violations }) =>
    violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]))"""


async def busy_page(site: Site, **options: Any) -> Page:
    """Open the page with a node offline, one running, one waiting, one refused."""
    node, gone = await site.node(models=("m", "other")), await site.node()
    await gone.stop_listening()
    await site.start(node, gone, queue={"max_size": 1})
    await site.hold(node)
    await site.ask()
    assert (await (await site.ask()).reply()).status == 429
    page = await site.open(**options)
    await expect(page.locator("#troubles li").first).to_be_visible()
    await expect(page.locator("#problems li")).not_to_have_count(0)
    await expect(page.locator("#try-model option")).to_have_count(2)
    return page


@cache
def axe_script() -> str:
    return str(Axe().axe_script)


async def found_by_axe(
    page: Page, part: str = "html", *, rules: Sequence[str] = RULES
) -> dict[str, list[str]]:
    """Return what is wrong with this part of the page, by rule: axe takes a second for all of it.

    Only what has been looked at before, and has not changed since, may be left out.
    """
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(axe_script())
    return dict(await page.evaluate(RUN_AXE, [part, rules]))


async def test_axe_finds_nothing_wrong_with_a_busy_page(site: Site) -> None:
    page = await busy_page(site)
    await page.locator("#timeline-table summary").click()
    await page.locator("#nodes .actions button").first.click()
    await open_try_it(page)
    await page.locator("#try-send").click()
    await expect(page.locator("#tries [data-state=failed]")).to_be_visible()
    assert await found_by_axe(page) == {}
    await page.get_by_label("Colours").select_option("dark")
    assert await found_by_axe(page, rules=COLOURS) == {}
    await page.set_viewport_size(PHONE["viewport"])
    await page.get_by_label("Language").select_option("ja")
    assert await found_by_axe(page) == {}


async def test_axe_finds_nothing_wrong_with_the_first_minute(site: Site) -> None:
    await site.start(await site.node())
    page = await site.open(**PHONE)
    await expect(page.locator("#welcome")).to_be_visible()
    assert await found_by_axe(page) == {}
    await page.get_by_label("Colours").select_option("dark")
    assert await found_by_axe(page, rules=COLOURS) == {}


async def test_axe_finds_nothing_wrong_with_old_numbers(site: Site) -> None:
    gateway = await site.start(await site.node())
    page = await site.open()
    await gateway.stop()
    await expect(page.locator("body")).to_have_attribute("data-old", "yes")
    assert await found_by_axe(page) == {}
    await page.get_by_label("Colours").select_option("dark")
    assert await found_by_axe(page, rules=COLOURS) == {}


async def test_axe_would_find_something_wrong(site: Site) -> None:
    await site.start(await site.node())
    page = await site.open()
    names = page.locator(".tile dt")
    await names.evaluate_all("all => all.forEach(({ style }) => (style.color = '#bbb'))")
    await page.locator("#version").evaluate("element => element.append(new Image())")
    assert (await found_by_axe(page)).keys() >= {"color-contrast", "image-alt"}
    assert (await found_by_axe(page, "main", rules=COLOURS)).keys() == {"color-contrast"}


@pytest.mark.parametrize("language", ["en-GB", "ja-JP"])
async def test_nothing_is_wider_than_the_screen(site: Site, language: str) -> None:
    page = await busy_page(site, language=language)
    for width in (320, 390, 768, 1280, 1920):
        await page.set_viewport_size({"width": width, "height": 800})
        assert await page.evaluate("document.documentElement.scrollWidth") <= width


WORDS_IN_LINES = """() => [...document.querySelectorAll("#models thead th")].map((cell) => {
  const text = cell.firstChild;
  return text.data.split(" ").map((word, i, all) => {
    const range = document.createRange();
    const start = all.slice(0, i).join(" ").length + (i ? 1 : 0);
    range.setStart(text, start);
    range.setEnd(text, start + word.length);
    return new Set([...range.getClientRects()].map(({ top }) => top)).size;
  });
})"""


@pytest.mark.parametrize("language", ["en", "ja"])
async def test_the_words_over_the_models_stay_whole_on_a_phone(site: Site, language: str) -> None:
    await site.start(await site.node(models=("m", "a-model-with-a-name-as-long-as:70b-q4_K_M")))
    page = await site.open(**PHONE)
    await page.get_by_label("Language").select_option(language)
    await expect(page.locator("#models tbody tr")).to_have_count(2)
    lines = await page.evaluate(WORDS_IN_LINES)
    assert len(lines) == 5
    assert {each for cell in lines for each in cell} == {1}
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390


async def test_a_long_wait_of_a_model_with_a_long_name_is_in_sight(site: Site) -> None:
    node = await site.node(models=("a-model-with-a-name-as-long-as:70b-q4_K_M",))
    await site.start(node)
    page = await site.open()
    waits = page.locator("#models tbody td:last-child")
    await expect(waits).to_have_count(1)
    await waits.evaluate("cell => { cell.textContent = '11 min 30 s - 22 min 59 s'; }")
    frame = page.locator("#models-scroll")
    for width in (320, 390, 768, 1100, 1280, 1920):
        await page.set_viewport_size({"width": width, "height": 800})
        cut_off = await frame.evaluate("frame => frame.scrollWidth - frame.clientWidth")
        assert cut_off <= 0, width


async def test_dark_is_dark_by_the_system_and_by_choice_and_is_remembered(site: Site) -> None:
    await site.start(await site.node())
    page = await site.open()
    await page.emulate_media(color_scheme="dark")
    site.stack.push_async_callback(page.emulate_media, color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = await page.evaluate(ground)
    await page.get_by_label("Colours").select_option("light")
    light = await page.evaluate(ground)
    assert brightness(dark) < 0.1 < 0.9 < brightness(light)
    await page.reload()
    await expect(page.locator(".tile-waiting")).to_be_visible()
    assert await page.evaluate(ground) == light


def brightness(colour: str) -> float:
    red, green, blue = (int(part) / 255 for part in re.findall(r"\d+", colour)[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def english() -> set[str]:
    """The words of the English page that could stand alone and are not the same in Japanese."""
    pairs = [
        dict(re.findall(r'^  (\w+): "((?:[^"\\]|\\.)*)",$', (STATIC / name).read_text(), re.M))
        for name in ("words_en.js", "words_ja.js")
    ]
    said, same = pairs[0], set(pairs[1].values())
    return {text for text in said.values() if re.search("[a-z]{2}", text) and text not in same}


async def test_in_japanese_no_english_is_left(site: Site) -> None:
    page = await busy_page(site, language="ja-JP")
    await expect(page.locator("html")).to_have_attribute("lang", "ja")
    await expect(page.get_by_text("平均待ち時間")).to_be_visible()
    await page.locator("#timeline-table summary").click()
    seen = await page.evaluate(
        """() => [...document.querySelectorAll("body *")].flatMap((element) => [
          ...[...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data),
          ...["aria-label", "aria-valuetext", "title"].map((name) => element.getAttribute(name)),
        ]).filter(Boolean).map((text) => text.trim())"""
    )
    patterns = [".+".join(map(re.escape, re.split(r"\{[^}]*\}", text))) for text in english()]
    assert len(patterns) > 100
    left = [text for text in seen for pattern in patterns if re.fullmatch(pattern, text)]
    assert sorted(set(left)) == []
    trouble = await page.locator("#troubles .what").all_inner_texts()
    assert all(re.search("[ぁ-ん]", text) for text in trouble)


async def test_a_language_chosen_is_remembered_and_changes_everything_at_once(site: Site) -> None:
    node = await site.node()
    await site.start(node)
    page = await site.open()
    cards = await send(page, "Hello")
    await stream(await node.next_call(), "Hi")
    await expect(cards.locator(".attempt-status")).to_have_text("Completed")
    await page.get_by_label("Language").select_option("ja")
    await expect(cards.locator(".attempt-status")).to_have_text("完了")
    await expect(page.locator("#try-priority option")).to_have_text(["高", "通常", "低"])
    await page.reload()
    await expect(page.locator(".tile-waiting dt")).to_have_text("待機中")


async def test_everything_is_reached_and_shown_by_the_tab_key(site: Site) -> None:
    await site.start(await site.node())
    page = await site.open()
    await expect(page.locator("#try-model")).not_to_have_value("")
    all_of_them = await page.evaluate(
        """() => [...document.querySelectorAll(
          "a, button, input, select, textarea, summary, [tabindex='0']")]
          .filter((element) => element.checkVisibility() && !element.disabled)
          .map((element, i) => (element.dataset.stop = String(i)))"""
    )
    reached, seen_focus = [], 0
    for _ in range(len(all_of_them)):
        await page.keyboard.press("Tab")
        stop, outline = await page.evaluate(
            "[document.activeElement].flatMap("
            "(element) => [element.dataset.stop, getComputedStyle(element).outlineStyle])"
        )
        reached.append(stop)
        seen_focus += outline != "none"
    assert reached == all_of_them  # in the order in which they stand
    assert seen_focus == len(reached)


async def test_the_skip_link_leads_to_the_figures(site: Site) -> None:
    await site.start(await site.node())
    page = await site.open()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the figures")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()


async def test_a_finger_reads_the_time_line_and_does_not_zoom_it(site: Site) -> None:
    await site.start(await site.node())
    page = await site.open(**PHONE)
    chart = page.get_by_role("slider")
    await chart.scroll_into_view_if_needed()
    await chart.tap(position={"x": 200, "y": 90})
    await expect(page.locator(".moment")).to_be_visible()
    await expect(page.locator("#zoom-reset")).to_be_hidden()
