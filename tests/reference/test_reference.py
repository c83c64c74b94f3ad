"""Every generated file is what the code says."""

from pathlib import Path

import pytest

from tools.reference.pages import pages

ROOT = Path(__file__).parents[2]


PAGES = pages()


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_the_generated_file_is_up_to_date(path: Path) -> None:
    assert (ROOT / path).read_text() == PAGES[path], "run: make reference"
