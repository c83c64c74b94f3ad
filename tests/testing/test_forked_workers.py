"""Forked workers: every test runs once, and nothing that goes wrong in a worker is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
CONFTEST = """
import pytest
from harness.forked_workers import run_in_workers

@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    return run_in_workers(session, [[item] for item in session.items], 2)
"""
TESTS = """
import os, pytest
from pathlib import Path

@pytest.mark.parametrize("n", range(20))
def test_runs(n, tmp_path):
    (tmp_path / "ran").touch()
    print("said by", n)
    assert os.environ.get("FAIL") != str(n)

def test_may_die():
    if "DIE" in os.environ:
        os.kill(os.getpid(), 9)

def test_may_leave_something():
    class Leaver:
        def __del__(self):
            raise ValueError("left behind")
    if "LEAVE" in os.environ:
        leaver = Leaver()
        leaver.itself = leaver
"""


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_some.py").write_text(TESTS)
    words = ("-q", "-W", "error", "-p", "no:cacheprovider", f"--basetemp={folder / 'temporary'}")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(folder)],
        env={**os.environ, **OURS, **environment},  # noqa: TID251 # for the child
        cwd=folder, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_every_test_runs_once_with_files_of_its_own(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.returncode, "22 passed" in done.stdout) == (0, True), done.stdout
    assert len(list(tmp_path.glob("temporary/worker-*/test_runs_*0/ran"))) == 20


def test_a_failure_is_told_with_what_was_printed(tmp_path: Path) -> None:
    done = run(tmp_path, FAIL="7")
    assert (done.returncode, "1 failed, 21 passed" in done.stdout) == (1, True), done.stdout
    assert "said by 7" in done.stdout
    assert "said by 8" not in done.stdout


@pytest.mark.parametrize(
    ("what", "told"), [("DIE", "ended with -9"), ("LEAVE", "ended with 1")], ids=["dies", "leaves"]
)
def test_a_worker_that_ends_badly_fails_the_run(tmp_path: Path, what: str, told: str) -> None:
    done = run(tmp_path, **{what: "1"})
    assert (done.returncode, told in done.stdout) == (3, True), done.stdout
