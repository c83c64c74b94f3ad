"""Which build is tested, and that it says so."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from forebay import __version__
from forebay.build import BUILD, describe_build
from forebay.cli.main import app
from tools.compile import modules

if TYPE_CHECKING:
    import pytest


def test_every_hot_module_is_of_the_build_that_is_tested(request: pytest.FixtureRequest) -> None:
    """`make compiled` insists: else the plain modules would be tested twice."""
    names = [path.removesuffix(".py").replace("/", ".") for path in modules()]
    found = [importlib.util.find_spec(name) for name in names]
    kinds = {"plain" if str(spec and spec.origin).endswith(".py") else "compiled" for spec in found}
    assert kinds == {"compiled" if request.config.getoption("--compiled") else "plain"}
    assert kinds == {BUILD}


def test_the_version_says_which_build_it_is() -> None:
    said = CliRunner().invoke(app, ["--version"]).output
    assert said == f"forebay {__version__} ({describe_build()})\n"
    assert ("compiled" in said, "plain Python" in said) == (BUILD == "compiled", BUILD == "plain")
