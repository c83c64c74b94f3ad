"""The rules of the house that no linter knows: small files, small functions, honest names."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from harness.syntax_trees import statements
from tools.structure import circles, imports
from tools.volume import volume

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
SLACK_SHARE, SLACK_LINES = 0.02, 60
BANNED_FILE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base"}
BANNED_WORDS = {"process", "handle_data", "info"}
BANNED_MARKS = re.compile(r"\b(?:FIXME|XXX|HACK)\b|\bTODO\b(?!\(#\d+\))")


def badly_made(tree: ast.AST) -> Iterator[str]:
    """Yield the functions that are too long, and the names that say nothing."""
    for node in statements(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name in BANNED_WORDS:
            yield node.name
        lines = (node.end_lineno or node.lineno) - node.lineno
        if lines >= FUNCTION_LINES_MAX and not isinstance(node, ast.ClassDef):
            yield f"{node.name} ({lines} lines)"


def offences(path: Path) -> Iterator[str]:
    """Yield what a file does that it should not."""
    text = path.read_text()
    tree = ast.parse(text)
    if path.stem in BANNED_FILE_NAMES:
        yield "its name says nothing"
    if text.count("\n") > LINES_MAX:
        yield f"it has more than {LINES_MAX} lines"
    yield from badly_made(tree)
    if path != Path(__file__):
        yield from BANNED_MARKS.findall(text)
    if not (ast.get_docstring(tree) or "").strip():
        yield "it does not open with a sentence about itself"


def test_files_are_small_well_named_and_open_with_a_sentence_about_themselves() -> None:
    found = {str(path.relative_to(ROOT)): list(offences(path)) for path in SOURCES}
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


def test_the_guard_itself_would_catch_a_long_function() -> None:
    body = "\n".join("    x = 1" for _ in range(FUNCTION_LINES_MAX + 1))
    assert list(badly_made(ast.parse(f"def f():\n{body}\n"))) != []


def test_the_repo_names_no_package_host_and_no_path_of_a_machine() -> None:
    banned = re.compile("python" + "hosted|pypi" + r"\.org|/ro" + "ot/|/wo" + "rk/")
    for path in [*SOURCES, *ROOT.glob("*.*"), *ROOT.glob("docs/**/*.md"), ROOT / "Makefile"]:
        if path.is_file() and path.name != ".git":  # a file where the tree is one of several
            assert banned.search(path.read_text(errors="replace")) is None, path


def beyond(found: dict[str, int], bounds: dict[str, int]) -> list[str]:
    """Return what is larger than its bound, has none, or left it far behind."""
    return [
        f"{name}: {found.get(name, 0)}, its bound in tests/volume.json is {bounds.get(name, 0)}"
        for name in sorted(found.keys() | bounds.keys())
        if not 0 <= bounds.get(name, 0) - found.get(name, 0) <= slack_of(bounds, name)
    ]


def slack_of(bounds: dict[str, int], name: str) -> float:
    """Return how far below its bound something may be, so that bounds follow what is deleted."""
    return max(SLACK_LINES, SLACK_SHARE * bounds.get(name, 0))


def test_the_volume_stays_within_its_bounds_and_the_bounds_follow_it_down() -> None:
    bounds = json.loads((ROOT / "tests" / "volume.json").read_text())
    found = volume()
    assert beyond(found["parts"], bounds["parts"]) == []
    for large in ("files", "classes"):
        assert beyond(found[large], bounds[large]) == []


def test_the_guard_itself_would_catch_what_grows_is_new_or_has_shrunk() -> None:
    bounds = {"src/core": 5000, "src/cli": 100, "src/gone": 70}
    assert beyond({"src/core": 4900, "src/cli": 40, "src/gone": 10}, bounds) == []
    assert len(beyond({"src/core": 5001, "src/cli": 39, "src/new": 1}, bounds)) == 4


def test_no_modules_of_the_core_import_each_other_in_a_circle_not_even_for_types() -> None:
    graph = imports(ROOT / "src" / "forebay" / "core", "forebay.core")
    assert circles(graph) == []


def test_the_guard_itself_would_catch_a_circle_for_types_or_through_the_package(
    tmp_path: Path,
) -> None:
    (tmp_path / "__init__.py").write_text("from p.a import A\n")
    (tmp_path / "a.py").write_text("if TYPE_CHECKING:\n    from p.b import B\n")
    (tmp_path / "b.py").write_text("def f():\n    from p import a\n")
    (tmp_path / "c.py").write_text("from p.b import B\n")
    (tmp_path / "d.py").write_text("from p import A\n")
    graph = imports(tmp_path, "p")
    assert circles(graph) == [["p.a", "p.b"]]
    assert graph["p.d"] == {"p"}
