"""The reports: whole, escaped, and needing nothing from anywhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from forebay.load.charts import durations, linear
from forebay.load.limits import Broken, parse_limit
from forebay.load.page import run_page
from forebay.load.plan import parse_mix

from .making import failed, made, ok, samples

if TYPE_CHECKING:
    from forebay.load.samples import RequestSample

PLACES = {"d", "y", "width", "height"}
EVIL = "<script>alert(1)</script>\"'&"
USERS = parse_mix("alice,bob,carol", "--users", "u")
PRIORITIES = parse_mix("high,normal", "--priorities", "p")


class Page:
    """A page as it was understood: it must be well formed even as XML, which forgives nothing."""

    def __init__(self, text: str) -> None:
        elements = list(ElementTree.fromstring(text.removeprefix("<!doctype html>")).iter())
        self.tags = [element.tag for element in elements]
        self.attributes = [pair for element in elements for pair in element.attrib.items()]
        self.text = "".join(element.text or "" for element in elements)


def check_page(page: str) -> Page:
    """See that a page is well formed, runs nothing and fetches nothing."""
    found = Page(page)
    assert not {"script", "link", "img", "iframe", "object", "base", "use"} & set(found.tags)
    names = {name for name, _ in found.attributes}
    assert not {"src", "href", "xlink:href", "style", "srcset", "action"} & names
    assert not any(name.startswith("on") for name in names)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    policies = [value for name, value in found.attributes if name == "content" and value]
    assert any(value.startswith("default-src 'none'") for value in policies)
    assert '<th scope="col"></th>' not in page, "a column without a name"
    assert not any("nan" in value for name, value in found.attributes if name in PLACES)
    return found


@settings(max_examples=30, deadline=None)
@given(samples())
def test_a_report_can_be_made_of_any_run(found: list[RequestSample]) -> None:
    document = made(found, users=USERS, priorities=PRIORITIES)
    check_page(run_page(document))


def test_nothing_that_came_from_outside_is_markup() -> None:
    found = [ok(0, 1.0, node=EVIL), failed(1, EVIL), ok(2, 3.0)]
    document = made(found, model=EVIL, url=f"http://{EVIL}", messages={EVIL: EVIL})
    broken = [Broken(parse_limit("errors>0", ()), 1.0)]
    page = run_page(document, broken)
    checked = check_page(page)
    assert EVIL in checked.text
    assert "alert(1)</script>" not in page


def test_plots_can_be_read_by_who_cannot_see_them() -> None:
    found = [ok(i / 10, 0.5 + i / 100, priority=p) for i in range(50) for p in ("high", "normal")]
    page = run_page(made(found, priorities=PRIORITIES))
    checked = check_page(page)
    shown = page.count('role="img"')
    assert shown >= 6
    described = [value for name, value in checked.attributes if name == "aria-label"]
    assert sum("within" in text or "at most" in text for text in described) >= 5
    assert page.count('class="plot"') == shown == page.count("The same as a table")
    assert "high: half within" in page


def test_a_broken_limit_and_a_warning_are_at_the_top() -> None:
    document = made([ok(i / 100, 1.0, late_s=1.0) for i in range(200)])
    page = run_page(document, [Broken(parse_limit("total_p50>1ms", ()), 1.0)])
    top = page.partition("<dl")[0]
    assert "total_p50&gt;1ms: it is 1.00 s" in top
    assert "COULD NOT KEEP THE SCHEDULE" in top


def test_a_server_without_a_queue_has_no_plot_of_it() -> None:
    page = run_page(made([ok(i, 1.0, wait_s=None) for i in range(5)]))
    assert "Queue wait, over time" not in page
    assert "<h3>Queue wait</h3>" not in page


# -- scales


@settings(deadline=None, max_examples=60)
@given(st.floats(1e-6, 1e9))
@example(125_025_001.0)
def test_marks_are_few_and_begin_at_zero_and_reach_the_largest_value(most: float) -> None:
    marks = linear(most).marks()
    assert 2 <= len(marks) <= 6
    assert marks == sorted(marks)
    assert marks[0] == 0.0
    assert most <= marks[-1] * 1.001 <= most * 3


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0, 1e5), max_size=50), st.floats(0, 1e5))
def test_every_value_is_placed_within_the_plot(values: list[float], value: float) -> None:
    scale = durations(values)
    assert 0.0 <= scale.place(value) <= 1.0
    assert all(0.0 <= scale.place(mark) <= 1.0 for mark in scale.marks())
    assert len(scale.marks()) <= 9


def test_durations_of_different_orders_are_drawn_by_powers_of_ten() -> None:
    assert durations([0.02, 0.5, 40.0]).marks() == [0.01, 0.1, 1.0, 10.0, 100.0]
    assert durations([1.0, 2.0, 3.0]).place(1.5) == 0.5


@pytest.mark.parametrize("values", [[], [0.0], [0.0, 0.0], [1.0], [1e-9, 1e5]])
def test_odd_values_make_a_scale_too(values: list[float]) -> None:
    assert durations(values).marks()
