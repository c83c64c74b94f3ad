"""What users may import, and what the packages may import of each other, is pinned.

`surface.txt` lists every name that one package takes from a module of another. The rest of a
package is private to it. Whoever needs another name adds it there, and the review sees it
(docs/decisions/0032-a-pinned-surface-per-package.md).
"""

import ast
import importlib
import importlib.resources
from functools import cache
from pathlib import Path

import pytest

import forebay
from harness.syntax_trees import statements

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "forebay"
SURFACE = Path(__file__).with_name("surface.txt")
PACKAGES = (
    "forebay.core",
    "forebay.batching",
    "forebay.coordination",
    "forebay.jobs",
    "forebay.nodes",
    "forebay.sdk",
    "forebay.settings",
    "forebay.testing",
)


@pytest.mark.parametrize("name", PACKAGES)
def test_everything_offered_exists(name: str) -> None:
    package = importlib.import_module(name)
    offered = package.__all__
    assert len(set(offered)) == len(offered)
    for export in offered:
        assert hasattr(package, export), f"{name} offers {export}"


@pytest.mark.parametrize("name", PACKAGES)
def test_everything_offered_is_documented(name: str) -> None:
    package = importlib.import_module(name)
    for export in package.__all__:
        value = getattr(package, export)
        if isinstance(value, type) and value.__module__.startswith("forebay."):
            assert value.__doc__, f"{name}.{export} has no docstring"


def package_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


@cache
def imported_across_packages() -> dict[str, set[str]]:
    """Return the names that modules take from modules of other packages, by home module."""
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ("forebay", *path.relative_to(SOURCE).with_suffix("").parts)
        here = package_of(".".join(parts))
        for node in statements(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("forebay."):
                home = node.module or ""
                if package_of(home) != here:
                    found.setdefault(home, set()).update(alias.name for alias in node.names)
    return found


def test_packages_take_from_each_other_only_what_the_surface_lists() -> None:
    lines = [
        f"{home}: {', '.join(sorted(names))}"
        for home, names in sorted(imported_across_packages().items())
    ]
    assert "\n".join(lines) + "\n" == SURFACE.read_text(), (
        f"another name of a package is used by others, or one no longer: look at {SURFACE.name}"
    )


def test_a_private_name_is_never_part_of_the_surface() -> None:
    for home, names in imported_across_packages().items():
        assert not any(name.startswith("_") and name != "__version__" for name in names), home
        assert not any(part.startswith("_") for part in home.split(".")), home


def test_the_package_is_typed_and_has_a_version() -> None:
    assert importlib.resources.files("forebay").joinpath("py.typed").is_file()
    assert forebay.__version__.count(".") == 2
