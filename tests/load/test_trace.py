"""Trace files: what is read, and how what is wrong with them is told."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.load.quantities import BadPlan
from forebay.load.trace import TraceRow, parse_trace, read_trace

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def parsed(text: str) -> list[TraceRow]:
    return list(parse_trace(text.splitlines(keepends=True), "t.csv"))


def test_times_are_seconds_or_dates_with_any_number_of_digits() -> None:
    rows = parsed(
        HEAD + "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n"
    )
    assert rows[1].at_s - rows[0].at_s == pytest.approx(0.052, abs=1e-6)
    assert (rows[0].prompt_tokens, rows[0].tokens_max) == (4808, 10)
    zoned = parsed(HEAD + "2023-11-16T18:17:03.5+01:00,1,1\n2023-11-16T17:17:04Z,1,1\n")
    assert zoned[1].at_s - zoned[0].at_s == pytest.approx(0.5, abs=1e-6)
    assert [row.at_s for row in parsed(HEAD + "0.5,1,1\n\n2,1,1\n")] == [0.5, 2.0]


def test_other_names_and_other_columns_are_taken_too() -> None:
    (row,) = parsed("id,at_s,output_tokens,input_tokens\na,1.5,7,300\n")
    assert row == TraceRow(1.5, 300, 7)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "t.csv is empty"),
        ("a,b\n1,2\n", "t.csv, line 1: no column for the time"),
        ("timestamp,ContextTokens\n1,2\n", "line 1: no column for the tokens of the answer"),
        (HEAD + "1,2\n", "t.csv, line 2: 2 columns, but the first line has 3"),
        (HEAD + "1,2,3\nsoon,2,3\n", "t.csv, line 3, column TIMESTAMP: 'soon' is not a time"),
        (HEAD + "nan,2,3\n", "line 2, column TIMESTAMP: 'nan' is not a time"),
        (HEAD + "1,many,3\n", "line 2, column ContextTokens: 'many' is not a number of tokens"),
        (HEAD + "1,2,-3\n", "line 2, column GeneratedTokens: '-3' is not a number of tokens"),
        (HEAD + "1,2,30000000\n", "line 2, column GeneratedTokens: 30000000 tokens are more"),
        (HEAD + "5,2,3\n4,2,3\n", "line 3, column TIMESTAMP: earlier than the line before"),
    ],
)
def test_a_bad_line_is_named_with_its_column(text: str, told: str) -> None:
    with pytest.raises(BadPlan) as caught:
        parsed(text)
    assert told in str(caught.value)


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=200))
def test_no_text_does_anything_but_be_read_or_refused(text: str) -> None:
    for head in ("", HEAD):
        with contextlib.suppress(BadPlan):
            parsed(head + text)


def test_a_file_that_cannot_be_read_is_told_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(BadPlan, match="No such file"):
        list(read_trace(tmp_path / "none.csv"))
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadPlan, match="not UTF-8"):
        list(read_trace(tmp_path / "b.csv"))
    (tmp_path / "long.csv").write_text(HEAD + "1" * 100_000)
    with pytest.raises(BadPlan, match="line 2: longer than"):
        list(read_trace(tmp_path / "long.csv"))
    (tmp_path / "bom.csv").write_text("\ufeff" + HEAD + "1,2,3\n", encoding="utf-8")
    assert list(read_trace(tmp_path / "bom.csv")) == [TraceRow(1.0, 2, 3)]
