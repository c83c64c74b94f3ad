"""Peers from PyPI, each in an environment of its own, installed once and kept."""

import subprocess
import sys
from pathlib import Path

from bench.gateway.programs import WillNotStart

INSTALL_S_MAX = 600


def installed(venvs: Path, package: str) -> Path:
    """Return the folder of the package's commands, installing it first if it is not there."""
    home = venvs / package.partition("[")[0]
    mark = home / ".installed"
    if mark.exists():
        return home / "bin"
    home.mkdir(parents=True, exist_ok=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    try:
        for command in ([sys.executable, "-m", "venv", str(home)], [*pip, "--quiet", package]):
            subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_S_MAX)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        raise WillNotStart(f"does not install: {lines[-1][:160] if lines else error}") from error
    except subprocess.TimeoutExpired as error:
        raise WillNotStart(f"does not install within {INSTALL_S_MAX} s") from error
    mark.touch()
    return home / "bin"
