"""The reports: whole, escaped, and needing nothing from anywhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.load.charts import Axis, log_marks, round_marks, time_axis
from forebay.load.comparison import compare
from forebay.load.limits import Broken, parse_limit
from forebay.load.page import compare_page, run_page
from forebay.load.plan import parse_mix

from .making import failed, made, ok, samples

if TYPE_CHECKING:
    from forebay.load.samples import RequestSample

PLACES = {"d", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height"}
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
    other = compare_page(document, document, compare(document, made(found, model="m")))
    assert EVIL in check_page(other).text


def test_plots_can_be_read_by_who_cannot_see_them() -> None:
    found = [ok(i / 10, 0.5 + i / 100, priority=p) for i in range(50) for p in ("high", "normal")]
    page = run_page(made(found, priorities=PRIORITIES))
    checked = check_page(page)
    shown = page.count('role="img"')
    assert shown >= 6
    assert checked.tags.count("desc") == shown
    ids = [value for name, value in checked.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    labels = [value for name, value in checked.attributes if name == "aria-labelledby"]
    assert {part for label in labels for part in label.split()} <= set(ids)
    assert page.count("<figure>") == page.count("The same as a table")
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
    assert 'id="cdf-wait-t"' not in page


# -- axes


@settings(deadline=None, max_examples=60)
@given(st.floats(0, 1e6), st.floats(1e-6, 1e6))
def test_round_marks_are_few_in_order_and_within(low: float, size: float) -> None:
    marks = round_marks(low, low + size)
    assert len(marks) <= 7
    assert marks == sorted(marks)
    assert all(low - size / 100 <= mark <= low + size * 1.01 for mark in marks)


@settings(deadline=None, max_examples=60)
@given(st.floats(1e-6, 1e3), st.floats(1.5, 1e6))
def test_marks_of_a_logarithmic_axis_are_within(low: float, ratio: float) -> None:
    marks = log_marks(low, low * ratio)
    assert len(marks) <= 8
    assert all(low * 0.99 <= mark <= low * ratio * 1.01 for mark in marks)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0, 1e5), max_size=50), st.floats(0, 1e5))
def test_every_value_is_placed_on_the_paper(values: list[float], value: float) -> None:
    axis = time_axis(values, 50.0, 400.0)
    assert 50.0 - 1e-6 <= axis.place(value) <= 400.0 + 1e-6
    assert Axis(0.0, 1.0, 10.0, 20.0).place(0.5) == 15.0


@pytest.mark.parametrize("values", [[], [0.0], [0.0, 0.0], [1.0], [1e-9, 1e5]])
def test_odd_values_make_an_axis_too(values: list[float]) -> None:
    assert time_axis(values, 0.0, 1.0).marks() is not None
