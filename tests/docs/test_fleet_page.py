"""The page on several replicas names every message and every key there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from forebay.coordination.protocol import messages
from forebay.coordination.store import keys

PAGE = (Path(__file__).parents[2] / "docs" / "internals" / "fleet.md").read_text()
NAMES = sorted({kind.__name__ for kind in (*get_args(messages.Up), *get_args(messages.Down))})
KEYS = [keys.LEASE, keys.EPOCH, keys.MEMBERS, keys.ABOUT]
KEYS += [keys.up(1).replace("1", "EPOCH"), keys.down("MEMBER")]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_says_what_a_message_means(name: str) -> None:
    tables = [line for line in PAGE.splitlines() if line.startswith("|")]
    assert any(re.search(rf"`{name}`", line) for line in tables)


@pytest.mark.parametrize("key", KEYS)
def test_the_page_says_what_a_key_holds(key: str) -> None:
    assert f"| `{key}` |" in PAGE
