"""The examples in docstrings do what they say.

pytest could find them itself, but would look into every module of the tests for that, in every
worker.
"""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = [
    ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
    for folder, within in ((ROOT / "src", "."), (ROOT, "harness"), (ROOT, "tools"), (ROOT, "bench"))
    for path in sorted((folder / within).rglob("*.py"))
    if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    and ">>> " in path.read_text()
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_do_what_they_say(name: str) -> None:
    failed, tried = doctest.testmod(import_module(name))
    assert tried > 0
    assert failed == 0
