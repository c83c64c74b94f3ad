"""The report: whole, with everything from outside as data, and allowed to run nothing but itself.

What the browser makes of it is in `tests/browser/test_report.py`.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings

from forebay.load.limits import Broken, parse_limit
from forebay.load.page import page
from forebay.load.plan import parse_mix
from forebay.load.report import run_report

from .making import EVIL, failed, made, ok, samples

if TYPE_CHECKING:
    from forebay.load.samples import RequestSample

USERS = parse_mix("alice,bob,carol", "--users", "u")
PRIORITIES = parse_mix("high,normal", "--priorities", "p")


class Page(HTMLParser):
    """A page as a browser reads it: what may run in it, and its data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.styles: list[str] = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
        self.scripts: list[str] = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found


def checked(text: str) -> Page:
    """See that a page runs only what it came with and fetches nothing."""
    found = Page(text)
    assert not {"link", "img", "iframe", "object", "base", "use"} & set(found.tags)
    assert not {"src", "href", "style", "srcset", "action"} & {name for name, _ in found.attributes}
    assert not any(name.startswith("on") for name, _ in found.attributes)
    policy = next(value for _, value in found.attributes if value.startswith("default-src 'none'"))
    digests = [b64encode(sha256(text.encode()).digest()).decode()
               for text in (*found.styles, *found.scripts[1:])]  # fmt: skip
    assert len(digests) == 2
    assert f"style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'" in policy
    return found


@settings(max_examples=30, deadline=None)
@given(samples())
def test_a_report_can_be_made_of_any_run(found: list[RequestSample]) -> None:
    document = made(found, users=USERS, priorities=PRIORITIES)
    checked(page(run_report(document)))


def test_nothing_that_came_from_outside_is_markup() -> None:
    found = [ok(0, 1.0, node=EVIL), failed(1, EVIL), ok(2, 3.0)]
    document = made(found, model=EVIL, url=f"http://{EVIL}", messages={EVIL: EVIL})
    text = page(run_report(document))
    assert EVIL not in text
    assert text.count("<script") == 2
    data = checked(text).data
    assert data["title"] == f"Load of {EVIL}"
    errors = next(table for table in data["sections"][2]["tables"] if table["title"] == "Errors")
    assert (errors["rows"][0][0], errors["rows"][0][-1]) == (EVIL, EVIL)


def test_a_broken_limit_and_a_warning_are_at_the_top() -> None:
    document = made([ok(i / 100, 1.0, late_s=1.0) for i in range(200)])
    report = run_report(document, [Broken(parse_limit("total_p50>1ms", ()), 1.0)])
    assert report.problems == ["--fail-if total_p50>1ms: it is 1.00 s"]
    assert "COULD NOT KEEP THE SCHEDULE" in report.warnings[0]


def test_a_server_without_a_queue_has_no_figure_of_it() -> None:
    report = run_report(made([ok(i, 1.0, wait_s=None) for i in range(5)]))
    titles = [figure.title for section in report.sections for figure in section.figures]
    assert titles[:2] == ["Time to first token", "Total"]
    assert not any("Queue wait" in title for title in titles)


def test_many_users_and_many_requests_are_drawn_in_part() -> None:
    names = ",".join(f"user-{i}" for i in range(70))
    found = [ok(i / 400, 1.0, user=f"user-{i % 70}") for i in range(4000)]
    report = run_report(made(found, users=parse_mix(names, "--users", "u")))
    by_user = next(table for table in report.sections[2].tables if table.title == "By user")
    assert by_user.rows[-1] == ["and 20 more (--json has them)"]
    each = next(figure for figure in report.sections[1].figures if figure.kind == "dots")
    assert 1000 < len(each.curves[0].points) <= 1500
