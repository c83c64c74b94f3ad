"""The commands that are printed can be typed where they are read."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from forebay.cli.invocation import as_called, with_url

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `forebay` in a folder of its own, called from the folder above."""
    made = tmp_path / ".venv" / "bin" / "forebay"
    made.parent.mkdir(parents=True)
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [".venv/bin/forebay", "serve"])
    monkeypatch.setenv("PATH", "/nowhere")
    return made


@pytest.mark.usefixtures("program")
def test_what_the_path_does_not_hold_is_printed_as_it_was_called() -> None:
    assert as_called("serve --port 7801") == ".venv/bin/forebay serve --port 7801"


def test_the_program_that_the_path_holds_has_its_name(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(program.parent))
    assert as_called("serve") == "forebay serve"


def test_another_program_of_that_name_is_not_taken_for_this_one(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "forebay").write_text("#!/bin/sh\n")
    (other / "forebay").chmod(0o755)
    monkeypatch.setenv("PATH", f"{other}:{program.parent}")
    assert as_called("serve") == ".venv/bin/forebay serve"


def test_a_path_with_a_space_is_quoted(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = program.parent.rename(program.parent.parent / "my bin")
    monkeypatch.setattr(sys, "argv", [str(folder / "forebay")])
    assert as_called("top") == f"'{folder}/forebay' top"


def test_what_is_no_command_of_ours_leaves_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/pytest"])
    assert as_called("top") == "forebay top"


@pytest.mark.usefixtures("program")
def test_the_address_is_named_only_where_it_must_be() -> None:
    assert with_url("chat", "http://127.0.0.1:7800") == ".venv/bin/forebay chat"
    assert with_url("chat", "http://localhost:7800") == ".venv/bin/forebay chat"
    assert with_url("chat", "http://127.0.0.1:7801").endswith("chat --url http://127.0.0.1:7801")
    assert with_url("chat", "https://127.0.0.1:7800").endswith("--url https://127.0.0.1:7800")
