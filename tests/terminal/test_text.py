"""Whatever is written fits its cells and is harmless, whoever chose the words."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from forebay.terminal.text import (
    LEVELS,
    Column,
    bar,
    brief,
    chart,
    clean,
    counted,
    fit,
    line,
    memory,
    plural,
    share,
    slot_bar,
    table,
    to_ascii,
    wrap,
)

ANY_NUMBER = st.one_of(
    st.integers(-(10**30), 10**30), st.floats(allow_nan=False, allow_infinity=False)
)
CELLS = st.integers(0, 200)
NASTY = (
    "\x1b[2J\x1b[31mred",
    "\x1b]52;c;aGVsbG8=\x07",
    "\x9b31m",
    "[red]markup[/red]",
    "a\nb\tc\r",
    "\u202eright to left",
    "zero\u200bwidth",
    "e\u0301" * 5 + "\u0301" * 50,
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 family",
    "東京タワー",
    "\u2601\ufe0f cloud",
    "\U0001f1ef\U0001f1f5" * 2,
    "\ud800 alone",
    "\u2028line",
    "\U0001f44d\U0001f3fd" * 9,
)
TEXTS = st.one_of(st.text(), st.sampled_from(NASTY))


def is_harmless(text: str) -> bool:
    """Say whether no terminal would do anything about a text but show it."""
    return not any(
        unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") for letter in text
    )


@given(TEXTS)
def test_what_is_cleaned_is_harmless_and_stays_as_it_is(text: str) -> None:
    cleaned = clean(text)
    assert is_harmless(cleaned)
    assert clean(cleaned) == cleaned
    assert to_ascii(cleaned).isascii()
    assert len(to_ascii(cleaned)) == cell_len(cleaned)


@pytest.mark.parametrize("text", ["gpu1", "[red]qwen3:8b[/red]", "café", "東京", "naïve {x}"])
def test_an_ordinary_name_is_left_alone(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize("text", NASTY)
def test_a_nasty_name_keeps_its_letters_but_not_its_powers(text: str) -> None:
    cleaned = clean(text)
    assert "\x1b" not in cleaned
    assert "\x9b" not in cleaned
    assert cleaned


@given(TEXTS, CELLS, st.booleans())
def test_a_text_that_is_fitted_has_exactly_its_cells(text: str, cells: int, right: bool) -> None:
    assert fit(line(text), cells, right=right).cell_len == cells


@given(st.lists(TEXTS, max_size=3), st.integers(3, 200), st.integers(1, 30))
def test_a_table_fills_its_width(texts: list[str], cells: int, least: int) -> None:
    columns = [
        Column("", least, line, 0, 10_000),
        Column("Size", 4, lambda text: line(len(text)), 10, right=True),
        Column("Also", 9, line, 40),
    ]
    lines = table("Texts", columns, texts, cells)
    assert [text.cell_len for text in lines] == [cells] * (1 + len(texts))
    assert ("Also" in lines[0].plain) == (cells >= 40 + 0 * least)


@given(TEXTS, st.integers(1, 100), st.integers(1, 6))
def test_a_text_that_is_wrapped_fits_its_lines(text: str, cells: int, lines_max: int) -> None:
    lines = wrap(text, cells, lines_max)
    assert len(lines) <= lines_max
    assert all(cell_len(line) <= cells for line in lines)


def test_wrapping_loses_no_word_where_there_is_room() -> None:
    text = "Start its server, or take the node out with: forebay nodes remove gpu2"
    assert " ".join(wrap(text, 20, 10)) == text


@given(ANY_NUMBER, ANY_NUMBER, CELLS)
def test_a_bar_fits_its_cells_and_shows_what_is_not_nothing(
    value: float, top: float, cells: int
) -> None:
    drawn = bar(value, top, cells)
    assert cell_len(drawn) <= cells
    assert bool(drawn) == (value > 0 and cells > 0)


@given(st.integers(-5, 10**12), st.integers(-5, 10**12), CELLS)
def test_slots_that_are_not_all_taken_do_not_look_so(taken: int, slots: int, cells: int) -> None:
    full, free = slot_bar(taken, slots, cells)
    assert len(full) + len(free) == min(max(0, slots), cells)
    if cells > 1 and 0 < taken < slots:
        assert full
        assert free


@given(st.lists(ANY_NUMBER, max_size=50), ANY_NUMBER, st.integers(1, 9))
def test_a_chart_has_a_column_for_each_value_and_its_rows(
    values: list[float], top: float, rows: int
) -> None:
    drawn = chart(values, top, rows)
    assert [cell_len(row) for row in drawn] == [len(values)] * rows


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=20), st.integers(1, 5))
def test_a_chart_is_as_high_as_its_values(values: list[int], rows: int) -> None:
    drawn = chart([float(value) for value in values], max(values), rows)
    heights = [sum(LEVELS.index(row[place]) for row in drawn) for place in range(len(values))]
    pairs = sorted(zip(values, heights, strict=True))
    assert [height for _, height in pairs] == sorted(heights)
    assert all((height == 0) == (value == 0) for value, height in pairs)


@given(ANY_NUMBER)
def test_any_amount_takes_few_letters(number: float) -> None:
    assert len(brief(number)) <= 6
    assert len(counted(abs(number))) <= 5
    assert len(share(number)) <= 4
    assert len(memory(number, number)) <= 12
    assert plural(number, "request").startswith(counted(number))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(9.96, "10 s"), (99.6, "2 min"), (-3, "0.0 s"), (5970, "2 h"), (172_800, "2 d")],
)
def test_a_duration_changes_its_unit_where_it_should(seconds: float, text: str) -> None:
    assert brief(seconds) == text
