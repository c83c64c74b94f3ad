"""What users may import: every name that a package offers exists, and is offered once."""

import importlib
import importlib.resources

import pytest

import forebay

PACKAGES = (
    "forebay.core",
    "forebay.batching",
    "forebay.coordination",
    "forebay.jobs",
    "forebay.nodes",
    "forebay.sdk",
    "forebay.settings",
    "forebay.testing",
    "forebay.testing.simulation",
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


def test_the_package_is_typed_and_has_a_version() -> None:
    assert importlib.resources.files("forebay").joinpath("py.typed").is_file()
    assert forebay.__version__.count(".") == 2
