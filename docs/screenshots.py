"""Take the pictures of the docs from the running demo: `make screenshots`.

Each is taken at the moment that it is about: the script reads the captions on the page.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

IMAGES = Path(__file__).parent / "images"
COMMAND = Path(sys.executable).parent / "forebay"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 240_000
"""The demo takes about two minutes; a scene that was missed comes again."""


@contextmanager
def demo() -> Iterator[str]:
    """Run the demo and give its address."""
    with subprocess.Popen(
        [COMMAND, "demo", "--port", "0"], stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stderr is not None
        try:
            yield next(
                found.group()
                for line in child.stderr
                if (found := re.search(r"http://[0-9.]+:[0-9]+", line))
            )
        finally:
            child.send_signal(signal.SIGINT)
            child.communicate()


def open_page(browser: Browser, url: str, **options: object) -> Page:
    """Open the page as somebody with these preferences sees it."""
    page = browser.new_context(**options).new_page()  # type: ignore[arg-type]
    page.goto(url)
    page.get_by_text("gpu1").first.wait_for()
    return page


def until_it_says(page: Page, words: str) -> None:
    """Wait for a scene."""
    page.locator("#caption", has_text=words).wait_for(timeout=PATIENCE_MS)


def try_it(page: Page, copies: int) -> None:
    """Send messages from the try-it panel."""
    page.locator("#try-fold").evaluate("fold => fold.open = true")
    page.locator("#try-model").select_option("sim-small")
    page.locator("#try-copies").select_option(str(copies))
    page.locator("#try").get_by_role("button", name="Send").click()


def main() -> None:
    """Take all pictures."""
    fonts = subprocess.run(["fc-list", ":lang=ja"], capture_output=True, check=True)
    if not fonts.stdout:
        sys.exit("no font with Japanese: install one, such as Debian's fonts-noto-cjk")
    program = next(path for name in BROWSERS if (path := shutil.which(name)))
    desk = {"viewport": {"width": 1280, "height": 1000}, "reduced_motion": "reduce"}
    phone = {"viewport": {"width": 390, "height": 844}, "reduced_motion": "reduce"}
    with demo() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        light = open_page(browser, url, **desk, color_scheme="light", locale="en-GB")
        dark = open_page(browser, url, **desk, color_scheme="dark", locale="ja-JP")
        small = open_page(browser, url, **phone, color_scheme="light", locale="en-GB")
        try_it(light, copies=1)  # users of the demo do not stream: for the first token's time
        until_it_says(light, "A long line again")
        try_it(light, copies=4)
        light.locator("#tries").get_by_text("in line").first.wait_for(timeout=PATIENCE_MS)
        light.locator("#try").screenshot(path=IMAGES / "try-it.png")
        light.locator("#try-title").click()
        light.locator("#in-line summary").click()
        light.locator("#in-line tbody tr").nth(5).wait_for()
        light.locator("#in-line").screenshot(path=IMAGES / "in-line.png")
        light.locator("#in-line summary").click()
        light.evaluate("scrollTo(0, 0)")
        light.screenshot(path=IMAGES / "page.png")
        until_it_says(small, "made again")
        dark.screenshot(path=IMAGES / "page-dark.png")
        small.screenshot(path=IMAGES / "page-phone.png")
        browser.close()


if __name__ == "__main__":
    main()
