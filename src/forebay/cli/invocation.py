"""How people call this program from where they are, for the commands that it prints."""

from __future__ import annotations

import os
import shlex
import shutil
import sys

NAME = "forebay"
DEFAULT_URLS = ("http://127.0.0.1:7800", "http://localhost:7800")
"""Where every command looks by itself."""


def as_called(words: str) -> str:
    """Return a command of this program as it can be typed here: `forebay`, or the path to it.

    In a clone there is only `.venv/bin/forebay`, and another one may come first on the PATH.
    """
    called = sys.argv[0]
    if os.path.basename(called) != NAME or _is_first_on_path(called):
        return f"{NAME} {words}"
    return f"{shlex.quote(called)} {words}"


def with_url(words: str, url: str) -> str:
    """Return a command for the gateway at this address, which is named where it must be."""
    return as_called(words if url in DEFAULT_URLS else f"{words} --url {url}")


def _is_first_on_path(called: str) -> bool:
    found = shutil.which(NAME)
    try:
        return found is not None and os.path.samefile(found, called)
    except OSError:
        return True  # it is gone meanwhile: its name is as good as its path
