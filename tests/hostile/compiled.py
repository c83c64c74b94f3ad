"""The compiled build, made anew only when its sources have changed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def has_compiler() -> bool:
    return any(shutil.which(name) for name in ("cc", "gcc", "clang"))


def compiled_package() -> Path:
    """Return the folder of the compiled package; making it takes minutes."""
    options = ["--if-changed", "--unoptimised"]
    command = [sys.executable, str(ROOT / "tools" / "compile.py"), *options]
    subprocess.run(command, cwd=ROOT, check=True)
    return ROOT / "build" / "compiled-unoptimised"
