"""The table of faults names tests that exist, and every file with a test that names its row."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from harness.syntax_trees import statements

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "internals" / "faults.md"
ROW = re.compile(r"^\| (\d+) \|.*\| (.*?) \|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
NUMBERED = re.compile(r"test_faults?_((?:\d+_)+)")
ROWS = 84


def rows() -> dict[int, list[tuple[str, str]]]:
    """Return the tests that each row names, as path and function."""
    return {int(number): NAMED.findall(tests) for number, tests in ROW.findall(PAGE.read_text())}


@cache
def defined_in(path: str) -> frozenset[str]:
    """Return the tests of a file, without importing it."""
    file = ROOT / path
    tree = ast.parse(file.read_text()) if file.exists() else ast.Module([], [])
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in statements(tree) if isinstance(node, kinds))


def test_every_row_is_there_and_names_tests() -> None:
    found = rows()
    assert list(found) == list(range(1, ROWS + 1))
    assert [number for number, tests in found.items() if not tests] == []


def test_every_test_that_is_named_exists() -> None:
    missing = [
        f"row {number}: {path}::{name}"
        for number, tests in rows().items()
        for path, name in tests
        if name not in defined_in(path)
    ]
    assert missing == []


def numbers_of(name: str) -> list[int]:
    """Return the rows that a test says it shows."""
    found = NUMBERED.match(name)
    return [int(number) for number in found[1].split("_")[:-1]] if found else []


def test_the_name_of_a_test_says_which_rows_it_shows() -> None:
    assert numbers_of("test_faults_47_49_no_job_is_lost") == [47, 49]
    assert numbers_of("test_1_of_2") == []


def test_every_file_with_a_test_of_a_row_is_named_in_that_row() -> None:
    named = {number: {path for path, _ in tests} for number, tests in rows().items()}
    paths = sorted(
        str(file.relative_to(ROOT))
        for file in ROOT.glob("tests/**/test_*.py")
        if "test_fault" in file.read_text()
    )
    assert len(paths) > ROWS / 4, "the search itself must find something"
    missing = [
        f"row {number}: {path}::{name}"
        for path in paths
        for name in sorted(defined_in(path))
        for number in numbers_of(name)
        if path not in named[number]
    ]
    assert missing == []
