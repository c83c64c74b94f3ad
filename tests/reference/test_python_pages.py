"""The pages of the Python API have every public name, with the signature that it has."""

from __future__ import annotations

import inspect
import re
from functools import cache
from importlib import import_module

import pytest

from tools.reference import python as reference

NAMES = [
    (package, name)
    for package in reference.PACKAGES
    for name in import_module(f"forebay.{package}").__all__
]


@cache
def page(package: str) -> str:
    return reference.page(package)


def section_of(package: str, name: str) -> str:
    _, _, rest = page(package).partition(f"\n## {name}\n")
    return re.split(r"^## ", rest, flags=re.MULTILINE)[0]


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_a_public_name_has_its_section_and_says_what_it_is(package: str, name: str) -> None:
    section = section_of(package, name)
    assert re.search(r"^```python\n.*?^```\n\n\S", section, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_the_described_methods_of_a_class_are_shown_with_their_parameters(
    package: str, name: str
) -> None:
    public = getattr(import_module(f"forebay.{package}"), name)
    for method, function in vars(public).items() if inspect.isclass(public) else ():
        if method.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        _, _, rest = section_of(package, name).partition(f"\n### {name}.{method}\n")
        shown = rest.split("```")[1]
        for parameter in list(inspect.signature(function).parameters)[1:]:
            assert re.search(rf"\b{parameter}\b", shown), f"{name}.{method}: {parameter}"


def test_a_method_that_waits_for_an_asynchronous_one_is_shown_as_the_caller_sees_it() -> None:
    section = section_of("sdk", "Client")
    assert "```python\nmodels() -> list[str]\n```" in section
    assert "async " not in section


def test_the_keywords_behind_options_are_listed() -> None:
    assert "| `max_pending` | `float \\| None` |" in section_of("sdk", "Client")


def test_examples_are_fenced_and_described_parameters_are_a_list() -> None:
    section = section_of("batching", "RequestQueue")
    assert "```pycon\n>>> from forebay.batching import" in section
    assert "\n- `capacity`: how many may wait" in section
