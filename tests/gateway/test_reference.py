"""The pages about errors and headers say what the source says."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest

from forebay.core.actions import ExpireCode, RejectCode
from forebay.gateway.errors.codes import CODES
from forebay.gateway.hot.callers import EXPOSED
from forebay.gateway.openapi.document import document
from forebay.gateway.openapi.operations import RELAYED, REQUEST_HEADERS, RESPONSE_HEADERS
from forebay.relay.members import InvalidBody
from tools.reference import routes

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
HEADERS_PAGE = ROOT / "docs" / "reference" / "headers.md"
SPOKEN = ("wire", "relay", "dashboard", "gateway")
"""The packages that speak HTTP to clients and nodes."""
MAKERS = ("Problem", "Refusal")
CODE_ARGUMENT_OF = {"revoke": 1, "_time_out": 0}
"""Methods that make a problem of a code they are given."""
HEADER_NAME = re.compile(
    r"(?:x|access-control|accept|content|retry|www|transfer|proxy|keep|api|anthropic|referrer)"
    r"(?:-[a-z]+)+"
)
NOT_HEADERS = {"content-based", "x-ndjson"}


def sources() -> list[Path]:
    """Return the modules that speak HTTP."""
    root = ROOT / "src" / "forebay"
    return [path for package in SPOKEN for path in sorted((root / package).rglob("*.py"))]


@pytest.fixture(scope="module")
def trees() -> Iterator[list[ast.Module]]:
    """Parse them once for all tests of this module, and keep them no longer."""
    found = [ast.parse(path.read_text()) for path in sources()]
    yield found
    found.clear()


def codes_in(tree: ast.AST) -> set[str]:
    """Return every code that is written out where a problem is made."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            index = 0 if name in MAKERS else CODE_ARGUMENT_OF.get(name)
            if index is not None and len(node.args) > index:
                argument = node.args[index]
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    found.add(argument.value)
    return found


def test_every_route_and_every_body_is_on_the_page() -> None:
    page = routes.page()
    described: Any = document()
    for path, methods in described["paths"].items():
        for method in methods:
            assert f"\n### `{method.upper()} {path}`\n" in page
    for name in described["components"]["schemas"]:
        assert f"\n### {name}\n" in page


def test_every_code_that_the_source_can_produce_is_in_the_table(trees: list[ast.Module]) -> None:
    written_out = set().union(*(codes_in(tree) for tree in trees))
    assert len(written_out) > 15, "the search itself must find something"
    decided = {*get_args(RejectCode), *get_args(ExpireCode), InvalidBody.code}
    assert (written_out | decided) - CODES.keys() == set()


def test_every_code_in_the_table_can_be_produced() -> None:
    text = "".join(path.read_text() for path in sources() if path.name != "codes.py")
    decided = {*get_args(RejectCode), *get_args(ExpireCode)}
    assert {code for code in CODES if code not in decided and f'"{code}"' not in text} == set()


def test_every_error_says_what_happened_what_to_do_and_says_it_in_japanese_too() -> None:
    for name, code in CODES.items():
        assert code.meaning.endswith("."), name
        assert code.remedy.endswith("."), name
        assert code.japanese, name
        assert code.retry_after == (code.status in (429, 503) or name == "queue_timeout"), name
        if 400 <= code.status < 500 and not code.retry_after:
            assert code.retry == "never", name


def headers_in(trees: list[ast.Module]) -> set[str]:
    """Return every word in a literal, docstrings left out, that looks like a header's name."""
    found: set[str] = set()
    for tree in trees:
        texts: set[int] = set()
        for node in ast.walk(tree):  # what holds a text comes before the text
            if isinstance(node, ast.Expr):
                texts.add(id(node.value))
            elif isinstance(node, ast.Constant) and id(node) not in texts:
                value = node.value
                text = value.decode("latin-1") if isinstance(value, bytes) else value
                if isinstance(text, str):
                    words = re.split(r"[\s,:;()`]+", text.lower())
                    found |= {word for word in words if HEADER_NAME.fullmatch(word)}
    return found - NOT_HEADERS


def names_on_the_page() -> set[str]:
    words = set(re.findall(r"`([A-Za-z]+(?:-[A-Za-z]+)*)(?::[^`]*)?`", HEADERS_PAGE.read_text()))
    return {word.lower() for word in words}


def table_names() -> set[str]:
    return {
        name.lower()
        for name in re.findall(r"^\| `([A-Za-z-]+)` \|", HEADERS_PAGE.read_text(), re.MULTILINE)
    }


def test_every_header_in_the_source_is_on_the_page(trees: list[ast.Module]) -> None:
    in_source = headers_in(trees)
    assert {"x-forebay-max-wait", "retry-after-ms", "x-api-key"} <= in_source
    assert in_source - names_on_the_page() == set()


def test_every_header_on_the_page_is_in_the_source() -> None:
    text = "".join(path.read_text() for path in sources()).lower()
    names = table_names()
    assert len(names) > 30
    assert {name for name in names if name not in text} == set()


def test_the_page_and_the_description_for_programs_agree() -> None:
    described = {name.lower() for name in (*REQUEST_HEADERS, *RESPONSE_HEADERS)}
    assert described - table_names() == set()


def test_pages_of_other_origins_may_read_everything_that_is_said_about_a_relayed_request() -> None:
    exposed = set(EXPOSED.decode().split(", "))
    said = {*RELAYED, "Retry-After", "retry-after-ms", "x-should-retry"}
    assert {name.lower() for name in said} - exposed == set()
