"""Tokens: every request carries one, every answer must carry its own and no other.

`n-` marks a request, `x-` what must never run (a request hidden inside the body of another), `e-`
what a node sends unasked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

TOKEN = re.compile(rb"[nxe]-[0-9a-f]{12}")


def new_token(rng: Random, kind: str = "n") -> str:
    return f"{kind}-{rng.getrandbits(48):012x}"


def foreign(data: bytes, own: str) -> set[str]:
    """Return the tokens in there that are not this one."""
    return {found.decode() for found in TOKEN.findall(data)} - {own}
