"""Peers from PyPI and npm, each in an environment of its own, installed once and kept."""

import subprocess
import sys
from pathlib import Path

from bench.gateway.programs import WillNotStart

INSTALL_S_MAX = 600


def installed(venvs: Path, package: str) -> Path:
    """Return the folder of the package's commands, installing it first if it is not there.

    A name that begins with `npm:` is npm's, any other is PyPI's.
    """
    from_npm = package.startswith("npm:")
    home = venvs / package.removeprefix("npm:").partition("[")[0].strip("@").replace("/", "-")
    binaries = home / "node_modules" / ".bin" if from_npm else home / "bin"
    mark = home / ".installed"
    if mark.exists():
        return binaries
    home.mkdir(parents=True, exist_ok=True)
    try:
        for command in _npm(home, package) if from_npm else _pip(home, package):
            subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_S_MAX)
    except FileNotFoundError as error:
        raise WillNotStart(f"does not install: there is no {error.filename}") from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        raise WillNotStart(f"does not install: {lines[-1][:160] if lines else error}") from error
    except subprocess.TimeoutExpired as error:
        raise WillNotStart(f"does not install within {INSTALL_S_MAX} s") from error
    mark.touch()
    return binaries


def _pip(home: Path, package: str) -> list[list[str]]:
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    return [[sys.executable, "-m", "venv", str(home)], [*pip, "--quiet", package]]


def _npm(home: Path, package: str) -> list[list[str]]:
    quiet = ["--no-audit", "--no-fund", "--silent"]
    return [["npm", "install", *quiet, "--prefix", str(home), package.removeprefix("npm:")]]
