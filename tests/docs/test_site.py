"""The site builds without a warning, holds every page, and asks no outside host for anything."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, Page, ViewportSize

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
NOT_LOADED = {"canonical", "next", "prev", "alternate"}
THEME_S_OWN = {"landmark-unique"}
PHONE: ViewportSize = {"width": 390, "height": 800}
DESKTOP: ViewportSize = {"width": 1280, "height": 800}
OUTSIDE = re.compile(r"^(?:https?:)?//")


class Resources(HTMLParser):
    """What a page loads by itself, and where it leads."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {given["id"] or ""} if "id" in given else set()
        address = given.get(LOADED.get(tag, ""))
        if address and not set((given.get("rel") or "").split()) & NOT_LOADED:
            self.loaded.append(address)
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")


@cache
def read(page: Path) -> Resources:
    resources = Resources()
    resources.feed(page.read_text())
    return resources


def test_every_page_of_the_docs_is_on_the_site(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).as_posix().replace("README.md", "index.md")
        assert (site / name).with_suffix(".html").exists(), name


def test_no_page_loads_anything_from_an_outside_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        loaded = read(page).loaded
        assert any(address.endswith(".css") for address in loaded), page
        assert [address for address in loaded if OUTSIDE.match(address)] == [], page
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\(\s*[\"']?(?:https?:)?//", style.read_text()), style


def test_every_link_inside_the_site_leads_to_a_page_and_a_place_in_it(site: Path) -> None:
    pages = {page: read(page) for page in site.rglob("*.html") if page.name != "404.html"}
    for page, resources in pages.items():
        for link in resources.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert target.is_file(), f"{page.relative_to(site)} leads to {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].ids, f"{page.name}: {link}"


def test_state_diagrams_are_drawn_and_need_no_script(site: Path) -> None:
    for name in ("jobs.html", "sessions.html", "internals/scheduler.html"):
        text = (site / name).read_text()
        assert text.count('<svg class="states"') == 1, name
        assert "stateDiagram" not in text, name


# -- in a browser


in_browser = pytest.mark.asyncio(loop_scope="session")
"""On the browser's event loop."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser_page(browser: Browser) -> AsyncIterator[Page]:
    page = await browser.new_page(viewport=PHONE)
    page.set_default_timeout(20_000)
    yield page
    await page.close()


@in_browser
async def test_from_the_file_system_pages_ask_for_nothing_else_and_fit_a_phone(
    site: Path, browser_page: Page
) -> None:
    asked: list[str] = []
    errors: list[str] = []
    browser_page.on("request", lambda request: asked.append(request.url))
    browser_page.on("pageerror", lambda error: errors.append(str(error)))
    for name in ("index.html", "fairness.html", "jobs.html", "reference/http.html",
                 "internals/scheduler.html", "repository/bench/index.html"):  # fmt: skip
        await browser_page.goto((site / name).as_uri())
        width = await browser_page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"], name
    assert {urlsplit(url).scheme for url in asked} <= {"file", "data", "blob"}
    assert errors == []


@in_browser
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
async def test_the_site_can_be_read_by_those_who_see_little_or_nothing(
    site: Path, browser_page: Page, scheme: Literal["light", "dark"]
) -> None:
    await browser_page.emulate_media(color_scheme=scheme)
    for name, part in (
        ("index.html", "html"),
        ("jobs.html", ".md-content"),  # what is around it is on every page
        ("quickstart.html", ".md-content"),  # which has most kinds of code
    ):
        await browser_page.goto((site / name).as_uri())
        found = (await Axe().run(browser_page, part)).response["violations"]
        # The theme gives every copy button a landmark of one name; nothing of ours.
        told = {one["id"]: one["nodes"][0]["html"] for one in found if one["id"] not in THEME_S_OWN}
        assert told == {}, name


@in_browser
async def test_pictures_follow_the_switch_between_light_and_dark(
    site: Path, browser_page: Page
) -> None:
    await browser_page.set_viewport_size(DESKTOP)
    await browser_page.emulate_media(color_scheme="light")
    await browser_page.goto((site / "index.html").as_uri())
    for _ in range(2):
        await browser_page.locator("form[data-md-component=palette] label:visible").click()
    await browser_page.locator("body[data-md-color-scheme=slate]").wait_for()
    scheme = await browser_page.evaluate(
        "getComputedStyle(document.querySelector('img')).colorScheme"
    )
    assert scheme == "dark"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def searching(site: Path, browser_page: Page) -> Page:
    """The first page with the search open, which has read its index of all pages."""
    await browser_page.set_viewport_size(DESKTOP)
    await browser_page.goto((site / "index.html").as_uri())
    await browser_page.locator(".md-search__input").click()
    await browser_page.get_by_text("Type to start searching").wait_for()
    return browser_page


async def found_for(page: Page, words: str) -> list[str]:
    """Search for these words; return the addresses that are found, without what follows a `?`."""
    field = page.locator(".md-search__input")
    await field.fill("")
    await field.press("Backspace")  # the site listens for keys
    found = page.locator(".md-search-result__link")
    await found.first.wait_for(state="detached")
    await field.fill(words[:-1])
    await field.press(words[-1])
    await found.first.wait_for()
    addresses = await found.evaluate_all("all => all.map((link) => link.getAttribute('href'))")
    return [address.partition("?")[0] for address in addresses]


@in_browser
async def test_search_works_from_the_file_system(searching: Page) -> None:
    found = await found_for(searching, "swap_wait_seconds")
    assert any("reference/settings.html" in address for address in found)


@in_browser
@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("x-forebay-priority", "reference/headers.html"),
        ("sim-node", "reference/command-line.html"),
        pytest.param("X-Forebay-Max-Wait", "reference/headers.html", marks=pytest.mark.long),
        pytest.param("completion", "command-line.html", marks=pytest.mark.long),
    ],
)
async def test_what_is_searched_most_is_found_first(
    searching: Page, words: str, first: str
) -> None:
    assert f"/{first}" in (await found_for(searching, words))[0]
