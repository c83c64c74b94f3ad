"""The rules of the house that no linter knows: small files, small functions, honest names."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ELSEWHERE = (".venvs", "node_modules")  # what others wrote, and tools put there
SOURCES = sorted(
    path
    for folder in ("src", "harness", "tests", "bench", "tools")
    for path in (ROOT / folder).rglob("*.py")
    if not any(name in path.parts for name in ELSEWHERE)
)
LINES_MAX = 600
FUNCTION_LINES_MAX = 60
BANNED_FILE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base"}
BANNED_WORDS = {"process", "handle_data", "info"}
BANNED_MARKS = re.compile(r"\b(?:FIXME|XXX|HACK)\b|\bTODO\b(?!\(#\d+\))")


def names_defined(tree: ast.AST) -> set[str]:
    """Every function and class name in a module."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def long_functions(tree: ast.AST) -> list[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [
        f"{node.name} ({(node.end_lineno or 0) - node.lineno} lines)"
        for node in ast.walk(tree)
        if isinstance(node, kinds)
        and (node.end_lineno or node.lineno) - node.lineno >= FUNCTION_LINES_MAX
    ]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_is_small_and_well_named(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert path.stem not in BANNED_FILE_NAMES
    assert text.count("\n") <= LINES_MAX
    assert long_functions(tree) == []
    assert names_defined(tree) & BANNED_WORDS == set()
    if path != Path(__file__):
        assert BANNED_MARKS.search(text) is None


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_opens_with_a_sentence_about_itself(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring is not None
    assert docstring.strip()


def test_the_guard_itself_would_catch_a_long_function() -> None:
    body = "\n".join("    x = 1" for _ in range(FUNCTION_LINES_MAX + 1))
    assert long_functions(ast.parse(f"def f():\n{body}\n")) != []


def test_the_repo_names_no_package_host_and_no_path_of_a_machine() -> None:
    banned = re.compile("python" + "hosted|pypi" + r"\.org|/ro" + "ot/|/wo" + "rk/")
    for path in [*SOURCES, *ROOT.glob("*.*"), *ROOT.glob("docs/**/*.md"), ROOT / "Makefile"]:
        if path.is_file():
            assert banned.search(path.read_text()) is None, path
