"""`forebay batch`: a file goes up once, runs once, and its answers come back, whatever happens."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from forebay.cli.main import app
from forebay.sdk.transport import LoopPace

from .batch_server import BATCH, FILE, BatchServer, progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typer.testing import Result

COMMAND = str(Path(sys.executable).parent / "forebay")
LIMIT_S = 60.0  # only turns a hang into a failure


@pytest.fixture
def server() -> Iterator[BatchServer]:
    server = BatchServer()
    try:
        yield server
    finally:
        server.go_away()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(line(n)) + "\n" for n in range(3)))
    return path


def line(number: int, url: str = "/v1/chat/completions") -> dict[str, Any]:
    body = {"model": "m", "messages": [{"role": "user", "content": f"hello {number}"}]}
    return {"custom_id": str(number), "method": "POST", "url": url, "body": body}


def run(server: BatchServer, *words: object) -> Result:
    typed = [str(word) for word in words]
    return CliRunner().invoke(app, ["batch", *typed, "--url", server.url])


def out(file: Path) -> Path:
    return file.with_name("prompts.out.jsonl")


def errors(file: Path) -> Path:
    return file.with_name("prompts.errors.jsonl")


# -- the way through


def test_a_file_is_uploaded_run_and_its_answers_are_fetched(
    server: BatchServer, file: Path
) -> None:
    server.script = [progress("validating"), progress(completed=2), progress("completed", 3)]
    done = run(server, file)
    assert done.exit_code == 0, done.output
    assert "is completed in 1 min 1 s: 3 of 3 lines answered." in done.stdout
    assert str(out(file)) in done.stdout
    assert out(file).read_bytes() == server.files["out"]
    (upload,) = server.uploads
    assert file.read_bytes() in upload
    assert b'name="purpose"\r\n\r\nbatch\r\n' in upload
    assert b'filename="prompts.jsonl"' in upload
    (created,) = server.created
    assert created == {
        "input_file_id": FILE,
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "metadata": {"file": "prompts.jsonl"},
    }
    assert not errors(file).exists()
    assert sorted(path.name for path in file.parent.iterdir()) == [
        "prompts.jsonl", "prompts.out.jsonl",
    ]  # fmt: skip


def test_lines_that_failed_are_fetched_too_and_the_exit_code_says_so(
    server: BatchServer, file: Path, tmp_path: Path
) -> None:
    server.script = [progress("completed", 2, failed=1)]
    server.files["err"] = b'{"custom_id": "2"}\n'
    named = ("--out", tmp_path / "o", "--errors", tmp_path / "e", "--window", "7d")
    done = run(server, file, *named, "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout) == {
        "batch_id": BATCH,
        "status": "completed",
        "request_counts": {"total": 3, "completed": 2, "failed": 1},
        "output": str(tmp_path / "o"),
        "errors": str(tmp_path / "e"),
    }
    assert (tmp_path / "o").read_bytes() == server.files["out"]
    assert (tmp_path / "e").read_bytes() == server.files["err"]
    assert server.created[0]["completion_window"] == "7d"


def test_a_file_that_is_refused_is_explained_line_by_line_and_can_be_mended(
    server: BatchServer, file: Path
) -> None:
    faults = [
        {"code": "invalid_json_line", "message": "Not JSON.", "line": 2, "param": None},
        {"code": "too_many_lines", "message": "Too many.", "line": None, "param": None},
    ]
    server.script = [{**progress("failed"), "errors": {"object": "list", "data": faults}}]
    done = run(server, file)
    assert done.exit_code == 1
    assert f"{file}:2: Not JSON. (invalid_json_line)" in done.stderr
    assert f"{file}: Too many. (too_many_lines)" in done.stderr
    assert "run the same command again" in done.stderr
    file.write_text(json.dumps(line(7)))
    server.script = [progress("completed", 3)]
    assert run(server, file).exit_code == 0  # nothing had run, so nothing is in the way
    assert len(server.uploads) == 2


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("hello\n", "is not JSON"),
        ("[1]\n", "no custom_id"),
        ('{"custom_id": "1"}\n', "no url"),
    ],
)
def test_what_is_plainly_wrong_is_not_even_sent(
    server: BatchServer, file: Path, content: str, part: str
) -> None:
    file.write_text(content)
    done = run(server, file)
    assert done.exit_code == 2
    assert part in done.stderr
    assert server.uploads == []


def test_a_file_that_is_not_there_is_named(server: BatchServer, tmp_path: Path) -> None:
    for path, part in ((tmp_path / "none.jsonl", "No such file"), (tmp_path, "is a folder")):
        done = run(server, path)
        assert done.exit_code == 2
        assert part in done.stderr


def test_a_file_that_is_there_is_run_though_its_name_is_nearly_a_verb(
    server: BatchServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    missing = run(server, "lists")
    assert missing.exit_code == 2
    assert "no such command 'lists'. Did you mean 'list'?" in missing.stderr
    for path in ("./list", "cancel.jsonl"):
        assert f"{path.removeprefix('./')} cannot be read" in run(server, path).stderr
    file.rename("lists")
    assert run(server, "lists").exit_code == 0


def test_an_endpoint_that_the_lines_do_not_ask_for_is_refused(
    server: BatchServer, file: Path
) -> None:
    done = run(server, file, "--endpoint", "/v1/embeddings")
    assert done.exit_code == 2
    assert "asks for /v1/chat/completions" in done.stderr


def test_a_file_that_another_has_left_is_not_overwritten(server: BatchServer, file: Path) -> None:
    out(file).write_text("precious")
    done = run(server, file)
    assert done.exit_code == 2
    assert "--out" in done.stderr
    assert out(file).read_text() == "precious"
    assert server.uploads == []


# -- a batch that was left


def test_ctrl_c_leaves_the_batch_running_and_says_how_to_follow_it(
    server: BatchServer, file: Path
) -> None:
    started = threading.Event()
    server.script = [progress(completed=1)]

    def interrupt(poll: int) -> None:
        if poll == 2:
            started.wait(LIMIT_S)
            child.send_signal(signal.SIGINT)

    server.on_poll = interrupt
    child = subprocess.Popen(
        [COMMAND, "batch", str(file), "--url", server.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    started.set()
    said, complaint = child.communicate(timeout=LIMIT_S)
    assert (child.returncode, said) == (130, "")
    assert f"Batch {BATCH} continues" in complaint
    assert f"batch cancel {BATCH} --url {server.url}" in complaint
    assert "Traceback" not in complaint
    following = complaint.partition(" batch follow ")[2].partition("\n")[0].split()
    assert following[-2:] == ["--url", server.url]
    server.script = [progress("completed", 3)]
    done = run(server, "follow", *following[:-2])
    assert done.exit_code == 0, done.output
    assert "3 of 3 lines answered" in done.stdout
    assert out(file).read_bytes() == server.files["out"]
    assert (len(server.uploads), len(server.created), server.cancels) == (1, 1, 0)


def test_the_answers_of_a_cancelled_batch_are_fetched_by_its_id(
    server: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server.created.append({})
    server.script = [progress("cancelling", 1), progress("cancelled", 1)]
    done = run(server, "follow", BATCH)
    assert done.exit_code == 1
    assert "was cancelled" in done.stdout
    assert "1 of 3 lines answered" in done.stdout
    assert (tmp_path / f"{BATCH}.out.jsonl").read_bytes() == server.files["out"]


def test_a_batch_that_the_gateway_does_not_know_is_told(server: BatchServer) -> None:
    done = run(server, "follow", BATCH)
    assert done.exit_code == 1
    assert "there is no such thing" in done.stderr


def test_a_creation_whose_answer_was_lost_is_looked_for_in_the_list(
    server: BatchServer, file: Path
) -> None:
    server.lost_answers.add("/v1/batches")
    done = run(server, file)
    assert done.exit_code == 3
    assert f"The file is uploaded as {FILE}" in done.stderr
    assert "batch list" in done.stderr


def test_an_upload_that_was_not_answered_leaves_nothing_to_go_on_with(
    server: BatchServer, file: Path
) -> None:
    server.lost_answers.add("/v1/files")
    done = run(server, file)
    assert done.exit_code == 3
    assert "Nothing was created" in done.stderr


# -- a gateway that goes away


def test_a_gateway_that_goes_away_is_waited_for(
    server: BatchServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script = [progress(), progress(completed=1), progress("completed", 3)]
    server.on_poll = lambda poll: server.go_away() if poll == 2 else None
    waits: list[float] = []

    async def sleep(_: LoopPace, seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            server.start()

    monkeypatch.setattr(LoopPace, "sleep", sleep)
    done = run(server, file)
    assert done.exit_code == 0, done.output
    assert "Waiting for it to come back" in done.stderr
    assert "The gateway is back" in done.stderr
    assert waits[0] == 0.0
    assert 0.25 <= waits[1] <= 0.5 <= waits[2] <= 1.0
    assert (len(server.uploads), len(server.created)) == (1, 1)


def test_a_download_that_was_cut_off_is_made_again_and_never_shown_half(
    server: BatchServer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.cut_downloads = 2
    seen: list[bool] = []

    async def sleep(_: LoopPace, seconds: float) -> None:
        seen.append(out(file).exists())

    monkeypatch.setattr(LoopPace, "sleep", sleep)
    done = run(server, file)
    assert done.exit_code == 0, done.output
    assert "broke off its answer" in done.stderr
    assert seen == [False, False]
    assert out(file).read_bytes() == server.files["out"]


def test_where_no_gateway_is_nothing_is_begun(server: BatchServer, file: Path) -> None:
    server.go_away()
    try:
        done = run(server, file)
    finally:
        server.start()
    assert done.exit_code == 3
    assert "forebay serve" in done.stderr
