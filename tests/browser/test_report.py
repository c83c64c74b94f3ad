"""The report of `forebay bench` in a browser: one file from the disk, without a network."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from playwright.async_api import expect

from forebay.load.document import Document, document
from forebay.load.page import page as page_of
from forebay.load.plan import LoadPlan, parse_mix
from forebay.load.report import run_report
from forebay.load.run import Measured
from forebay.load.samples import RequestSample

from .conftest import TELL_VIOLATIONS
from .test_looks import COLOURS, found_by_axe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from playwright.async_api import Page

    from .conftest import Pages

pytestmark = pytest.mark.asyncio(loop_scope="session")

EVIL = "<script>alert(1)</script>\"'&<!--"
DRAWN = """() => [...document.querySelectorAll(".chart .marks path")].map((path) =>
  path.getAttribute("d"))"""


def ok(at_s: float, total_s: float, **more: Any) -> RequestSample:
    times = {"ttft_s": total_s / 2, "wait_s": total_s / 4}
    given = {"user": "alice", "priority": "high", "status": 200, "total_s": total_s, **times}
    return RequestSample(at_s=at_s, **{**given, **more})


def failed(at_s: float, code: str = "queue_full") -> RequestSample:
    return RequestSample(at_s, "alice", "high", code, 429, total_s=0.01)


def made(samples: list[RequestSample], span_s: float = 10.0, model: str = "m") -> Document:
    """Return the document of a run that ended as these requests did."""
    plan = LoadPlan(
        url="http://gateway",
        model=model,
        users=parse_mix("alice:1,bob:3", "--users", "u"),
        priorities=parse_mix("high,low", "--priorities", "p"),
    )
    messages = {sample.code: f"no: {sample.code}" for sample in samples if sample.code}
    return document(Measured(samples, span_s, span_s, messages, False), plan, "now", "0")


class Opened:
    """A report in a page that has no network, and what the page complained of."""

    def __init__(self, page: Page, folder: Path) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self._file = folder / "report.html"
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    async def show(self, document: Document) -> None:
        self._file.write_text(page_of(run_report(document)))
        await self.page.goto(self._file.as_uri())
        await expect(self.page.locator("footer p")).not_to_have_count(0)
        self.asked.remove(self._file.as_uri())


@pytest_asyncio.fixture(name="opened", loop_scope="session")
async def _opened(pages: Pages, tmp_path: Path) -> AsyncIterator[Opened]:
    page = await pages.new(TELL_VIOLATIONS, offline=True)
    opened = Opened(page, tmp_path)
    yield opened
    await page.context.close()
    assert (opened.complaints, opened.asked) == ([], [])


def usual() -> Document:
    found = [
        ok(i / 20, 0.2 + i / 50 * (1 + 20 * (i % 2)), user=user, priority=("high", "low")[i % 2])
        for i in range(200)
        for user in ("alice", "bob")
    ]
    return made([*found, failed(9.5)])


async def test_the_figures_are_drawn_and_can_be_read_without_seeing_them(opened: Opened) -> None:
    page = opened.page
    await opened.show(usual())
    await expect(page.locator("figure")).to_have_count(7)
    assert all(len(drawn) > 10 for drawn in await page.evaluate(DRAWN))
    for summary in await page.locator("figure summary").all():
        await summary.click()
    first = page.locator("figure").first
    await expect(first.locator("tbody th")).to_have_text(["high", "low"])
    await expect(first.locator("thead th")).to_have_text(
        ["Priority", "p5", "p25", "p50", "p75", "p90", "p95", "p99"]
    )
    assert await found_by_axe(page) == {}
    await page.emulate_media(color_scheme="dark")
    assert await found_by_axe(page, rules=COLOURS) == {}


async def test_the_legend_tells_the_values_under_the_pointer(opened: Opened) -> None:
    await opened.show(usual())
    first = opened.page.locator("figure").first
    await expect(first.locator(".legend b")).to_have_text(["", ""])
    stage = first.locator(".stage")
    size = await stage.bounding_box()
    assert size is not None
    await stage.hover(position={"x": size["width"] - 4, "y": 90})
    await expect(first.locator(".legend b")).to_have_text(["100 %", "100 %"])
    await expect(first.locator(".moment")).to_have_text("100 s")


async def test_nothing_that_came_from_outside_is_markup(opened: Opened) -> None:
    await opened.show(made([ok(0, 1.0), failed(1, EVIL), ok(2, 3.0)], model=EVIL))
    await expect(opened.page.get_by_role("heading", level=1)).to_have_text(f"Load of {EVIL}")
    await expect(opened.page.get_by_role("cell", name=f"no: {EVIL}")).to_have_text(f"no: {EVIL}")
    assert await opened.page.locator("script").count() == 2


@pytest.mark.parametrize(
    "document",
    [
        lambda: made([]),
        lambda: made([failed(1.0)]),
        lambda: made([ok(0.0, 0.0, ttft_s=0.0, wait_s=0.0)], span_s=0.0),
        lambda: made([ok(0.0, 1e-6), ok(1.0, 1e5)], span_s=1e5),
        lambda: made([ok(i / 9, 0.001 * i, ttft_s=None, wait_s=None) for i in range(90)]),
    ],
    ids=["nothing", "only a failure", "all at once", "twelve orders apart", "in one piece"],
)
async def test_odd_runs_are_drawn_within_their_charts(
    opened: Opened, document: Callable[[], Document]
) -> None:
    await opened.show(document())
    charts = opened.page.locator(".chart")
    for chart in await charts.all():
        height = float(await chart.get_attribute("height") or 0)
        for path in await chart.locator(".marks path").all():
            drawn = await path.get_attribute("d") or ""
            assert "NaN" not in drawn
            heights = [float(place) for place in re.findall(r"[ML][-\d.]+ ([-\d.]+)", drawn)]
            assert all(0 <= place <= height for place in heights)


async def test_nothing_is_wider_than_the_screen(opened: Opened) -> None:
    await opened.show(usual())
    for width in (320, 390, 768, 1280, 1920):
        await opened.page.set_viewport_size({"width": width, "height": 800})
        assert await opened.page.evaluate("document.documentElement.scrollWidth") <= width
