"""The wheel that people get: compiled where a C compiler is there, plain Python elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from forebay import __version__
from tools.compile import has_compiler

ROOT = Path(__file__).parent.parent.parent


def wheel(folder: Path, root: Path, **variables: str) -> Path:
    """Build a wheel, as pip has it built, with these variables; return where it is."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=root, env={**os.environ, **variables},  # noqa: TID251
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.glob("*.whl")
    return made


def version_of(made: Path) -> str:
    """Return what the command of a wheel says of itself."""
    place = made.parent / "unpacked"
    with ZipFile(made) as archive:
        archive.extractall(place)
    program = "from forebay.cli.main import main; main()"
    said = subprocess.run(
        [sys.executable, "-c", program, "--version"],
        cwd=place, env={**os.environ, "PYTHONPATH": str(place)},  # noqa: TID251
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return said.stdout.removeprefix(f"forebay {__version__} ").strip()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"COMPILE_HOT_PATH": "0"}, "(plain Python: COMPILE_HOT_PATH=0)"),
        ({"CC": "false"}, "(plain Python: false cannot compile with Python's headers)"),
        ({"CC": "no-such-compiler"}, "(plain Python: there is no C compiler (no-such-compiler))"),
    ],
    ids=["not wanted", "broken", "missing"],
)
def test_where_nothing_can_be_compiled_the_wheel_is_plain_and_says_why(
    variables: dict[str, str], said: str, tmp_path: Path
) -> None:
    made = wheel(tmp_path, ROOT, **variables)
    assert made.name.endswith("-py3-none-any.whl")
    assert version_of(made) == said


@pytest.mark.skipif(not has_compiler(), reason="there is no C compiler")
@pytest.mark.parametrize(
    "how", ["unoptimised", pytest.param("1", marks=pytest.mark.long)], ids=["quick", "as people do"]
)
def test_where_a_c_compiler_is_there_the_wheel_is_compiled_and_says_so(
    how: str, tmp_path: Path
) -> None:
    """The quick one is made of what other tests have compiled."""
    made = wheel(tmp_path, ROOT, COMPILE_HOT_PATH=how)
    assert "-none-any" not in made.name
    assert version_of(made) == "(compiled)"


@pytest.mark.long
def test_where_compiling_fails_midway_the_wheel_is_plain_and_says_so(tmp_path: Path) -> None:
    """In a tree of its own: the build that other tests use stays."""
    tree, compiler = tmp_path / "tree", tmp_path / "cc"
    (tree / "tools").mkdir(parents=True)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "tools/compile.py"):
        shutil.copy(ROOT / name, tree / name)
    shutil.copytree(ROOT / "src", tree / "src")
    compiler.write_text('#!/bin/sh\ncase "$*" in *-fsyntax-only*) exit 0;; esac\nexit 1\n')
    compiler.chmod(0o755)
    made = wheel(tmp_path, tree, CC=str(compiler))
    assert made.name.endswith("-py3-none-any.whl")
    assert version_of(made).startswith("(plain Python: compiling failed;")
