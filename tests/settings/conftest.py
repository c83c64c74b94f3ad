"""Away from the current directory, where somebody's forebay.toml may lie."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run each module in an empty directory; hypothesis wants no narrower scope."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        yield
