"""Every shell command on every page is run against a real gateway, or there is a reason not to."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .conftest import MODELS
from .reader import SHOWN_BATCH
from .shell_blocks import NOT_RUN, ONLY_PARSED, PAGES, lines_of, loops_of, name_of

if TYPE_CHECKING:
    from .reader import Reader
    from .shell_blocks import Line

FOREBAY = str(Path(sys.executable).parent / "forebay")
RUN_BEFORE = {
    "docs/command-line.md": [
        ["config", "init", "forebay.toml"],
        *(["jobs", "submit", "chat", "--prompt", str(n), "--model", MODELS[0]] for n in range(10)),
        ["batch", "questions.jsonl"],
    ],  # so that the next job is the 12th, and that there is a batch to show
    "docs/operations.md": [["config", "init", "/etc/forebay/forebay.toml"]],
}
"""What a page takes for granted."""
REFUSED = {
    "curl -X DELETE http://127.0.0.1:7800/jobs/1": "the job is done already: 409",
    "curl -X POST http://127.0.0.1:7800/jobs/1/retry": "the job did not fail: 409",
    "forebay queue show 5f0c...": "nobody waits",
    "forebay queue cancel 5f0c... 77ab...": "nobody waits",
    "forebay jobs cancel 12 13": "the jobs are done already",
    "forebay jobs retry 14": "the job did not fail",
    f"forebay batch cancel {SHOWN_BATCH}": "the batch is done already",
}
"""What a reader of the page may be refused, politely, in the order of the page."""
UNFINISHED = ("validating", "in_progress", "finalizing")
LINES = {page: lines_of(page) for page in PAGES}
WITH_CURL = [page for page, lines in LINES.items() if any(one.program == "curl" for one in lines)]


def run_here(line: Line) -> bool:
    return bool(line.verb) and line.verb not in ONLY_PARSED


WITH_FOREBAY = [page for page, lines in LINES.items() if any(map(run_here, lines))]


def plain(line: Line) -> str:
    """Return a command without its comment, and without the folder of its program."""
    return " ".join((line.program, *line.words[1:]))


def is_accounted_for(line: Line) -> bool:
    return line.program in ("forebay", "curl", *NOT_RUN) or not line.words


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_is_run_or_has_a_reason_not_to_be(page: Path) -> None:
    assert [line.text for line in LINES[page] if not is_accounted_for(line)] == []


def test_a_page_with_something_new_or_something_wrong_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\nA=1 dance && forebay status   # all is well\ncurl 'a\nb' \\\n c\n```\n")
    lines = lines_of(page)
    assert [line.words for line in lines] == [
        ("dance",),
        ("forebay", "status"),
        ("curl", "a\nb", "c"),
    ]
    assert [is_accounted_for(line) for line in lines] == [False, True, True]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_a_curl_line_that_leads_nowhere_is_noticed(tmp_path: Path, reader: Reader) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\ncurl http://127.0.0.1:7800/v1/modles\n```\n")
    (line,) = lines_of(page)
    status, answer = await reader.curl(line)
    assert (status, answer["error"]["code"]) == (404, "not_found")


def test_no_reason_is_left_over() -> None:
    used = {line.program for lines in LINES.values() for line in lines}
    assert NOT_RUN.keys() - used == set()
    shown = {plain(line) for lines in LINES.values() for line in lines}
    assert REFUSED.keys() - shown == set()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("page", WITH_CURL, ids=name_of)
async def test_the_curl_lines_of_a_page_get_their_answers(page: Path, reader: Reader) -> None:
    for line in LINES[page]:
        reader.set_variables(line)
        if line.program != "curl":
            continue
        status, answer = await reader.curl(line)
        while line.text.endswith("/BATCH_ID") and answer["status"] in UNFINISHED:
            status, answer = await reader.curl(line)
        refused = line.text in REFUSED and status == 409
        assert 200 <= status < 300 or refused, f"{line.text}\n{status} {answer}"


@pytest.mark.parametrize("page", WITH_FOREBAY, ids=name_of)
async def test_the_commands_of_a_page_do_what_they_say(page: Path, reader: Reader) -> None:
    before = RUN_BEFORE.get(name_of(page), [])
    lines = [line for line in LINES[page] if run_here(line)]
    if before:
        codes, said = await reader.forebay(before)
        assert codes == [0] * len(before), said
    codes, said = await reader.forebay([list(line.words[1:]) for line in lines])
    for line, code in zip(lines, codes, strict=True):
        refused = plain(line) in REFUSED
        assert code == 0 or (refused and code == 1), f"{line.text}: {code}\n{said}"


@pytest.mark.parametrize("page", [page for page in PAGES if loops_of(page)], ids=name_of)
async def test_the_small_programs_of_a_page_run(page: Path, reader: Reader) -> None:
    for block in loops_of(page):
        said = await reader.script(block, FOREBAY)
        assert said.lower().count("x-queue-status: ") == 4, said
        assert "x-queue-status: direct" in said.lower()
