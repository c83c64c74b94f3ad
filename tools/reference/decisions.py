"""Write docs/decisions/README.md, the list of decisions, from their titles: `make reference`."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = Path("docs/decisions")
PAGE = FOLDER / "README.md"
TITLE = re.compile(r"\A# (\d+)\. (.*)$", re.MULTILINE)

OPENING = """\
# Decisions

A choice that somebody could reasonably have made otherwise gets half a page: context, choice, what
was rejected. A later one may overrule an earlier one, and says so. `make reference` writes this
list.

| | |
|---|---|
"""


def page() -> str:
    """Return what the list should hold."""
    rows = []
    for path in sorted((ROOT / FOLDER).glob("0*.md")):
        title = TITLE.match(path.read_text())
        assert title is not None, f"{path.name} does not begin with its number and title"
        rows.append(f"| {title[1]} | [{title[2]}]({path.name}) |\n")
    return OPENING + "".join(rows)
