"""Lines of code: those that hold something that is neither a comment nor a docstring.

`python -m tools.volume` prints how many there are, in the form of `tests/volume.json`, which holds
the upper bounds. Comments, docstrings and blank lines are free, because they are wanted.
"""

from __future__ import annotations

import ast
import io
import json
import tokenize
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parent.parent
FOLDERS: Final = ("harness", "bench", "tools", "tests")
PAGE: Final = (".js", ".css", ".html")
OTHERS: Final = {".git", ".venv", ".venvs", "node_modules", "build", "dist"}
"""Folders of what others wrote, and of what tools put there."""
FILE_LINES: Final = 400
CLASS_METHODS: Final = 30
_FREE: Final = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip
_DOCUMENTED: Final = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def code_lines(text: str, tree: ast.AST) -> int:
    """Return how many lines of a file are lines of code.

    >>> text = "'''What it is for.'''\\n\\nx = [  # why\\n    1,\\n]\\n"
    >>> code_lines(text, ast.parse(text))
    3
    """
    nodes = list(ast.walk(tree))
    documented = [node for node in nodes if isinstance(node, _DOCUMENTED)]
    docs = {
        line
        for node in documented
        if ast.get_docstring(node, clean=False) is not None
        for line in _lines_of(node.body[0])
    }
    lines = enumerate(text.split("\n"), 1)
    free = {at for at, line in lines if not line.strip() or line.lstrip().startswith("#")}
    texts = (_lines_of(node) for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr))
    if any(len(span) > 1 and not (free - docs).isdisjoint(span) for span in texts):
        return len(_with_tokens(text) - docs)  # such a line of a text is code
    return text.count("\n") + 1 - len(free | docs)


def _lines_of(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _with_tokens(text: str) -> set[int]:
    """Return the lines of every token that is no comment: exact, and ten times as slow."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _FREE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines


def large_classes(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each class with CLASS_METHODS methods or more, and how many it has."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            methods = sum(
                isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in node.body
            )
            if methods >= CLASS_METHODS:
                yield node.name, methods


def part_of(path: Path) -> str:
    """Return what a file counts for: a package of `src`, or a folder.

    >>> part_of(Path("src/forebay/core/tickets.py")), part_of(Path("src/forebay/clock.py"))
    ('src/core', 'src/(root)')
    >>> part_of(Path("bench/core.py")), part_of(Path("examples/client.py"))
    ('bench', 'elsewhere')
    """
    if path.parts[:2] == ("src", "forebay"):
        return f"src/{path.parts[2]}" if len(path.parts) > 3 else "src/(root)"
    return path.parts[0] if path.parts[0] in FOLDERS else "elsewhere"


def files(*suffixes: str) -> Iterator[Path]:
    """Yield the files of the repository with these endings, relative to its root."""
    for path in sorted(ROOT.rglob("*")):
        if path.suffix in suffixes and not OTHERS.intersection(path.relative_to(ROOT).parts):
            yield path.relative_to(ROOT)


def volume() -> dict[str, dict[str, int]]:
    """Return the lines of each part, of each large file, and the methods of each large class."""
    parts: Counter[str] = Counter()
    large: dict[str, int] = {}
    classes: dict[str, int] = {}
    for path in files(".py"):
        text = (ROOT / path).read_text()
        tree = ast.parse(text)
        lines = code_lines(text, tree)
        parts[part_of(path)] += lines
        if path.parts[0] == "src":
            parts["src"] += lines
            if lines > FILE_LINES:
                large[str(path)] = lines
            classes |= {f"{path}::{name}": methods for name, methods in large_classes(tree)}
    for path in files(*PAGE):
        if path.parts[0] == "src":
            parts["page"] += sum(
                bool(line.strip()) for line in (ROOT / path).read_text().split("\n")
            )
    return {"parts": dict(sorted(parts.items())), "files": large, "classes": classes}


if __name__ == "__main__":
    print(json.dumps(volume(), indent=1))  # noqa: T201 - what it is for
