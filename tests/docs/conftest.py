"""The site, built once for all tests that look at it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make docs` builds; every warning of MkDocs is a failure."""
    folder = tmp_path_factory.mktemp("site")
    words = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--strict",
        "--site-dir",
        str(folder),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # noqa: TID251 # for the child
    built = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return folder
