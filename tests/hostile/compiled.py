"""The compiled build, made anew only when its sources have changed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TARGET = ROOT / "build" / "compiled"
MARK = TARGET / "sources.sha256"


def sources_hash() -> str:
    """Return what the build depends on, as one number."""
    found = hashlib.sha256(sys.version.encode())
    for path in (ROOT / "tools" / "compile.py", *sorted((ROOT / "src").rglob("*.py"))):
        found.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return found.hexdigest()


def has_compiler() -> bool:
    return any(shutil.which(name) for name in ("cc", "gcc", "clang"))


def compiled_package() -> Path:
    """Return the folder of the compiled package; it is made where it is missing or old."""
    wanted = sources_hash()
    if not MARK.exists() or MARK.read_text() != wanted:
        command = [sys.executable, str(ROOT / "tools" / "compile.py")]
        subprocess.run(command, cwd=ROOT, check=True)
        MARK.write_text(wanted)
    return TARGET
