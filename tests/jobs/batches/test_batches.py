"""A batch from its file to its files, on both databases; lines are run by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from forebay.jobs.batches import steps as batch_steps
from forebay.jobs.batches.batch import BadBatch, BatchesFull, NewBatch
from forebay.jobs.job import Failure

from ..desk import CHAT, Desk, counts, jsonl, line

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.jobs.job import Change


# -- from end to end


def test_a_batch_runs_and_its_answers_come_back_in_order(desk: Desk) -> None:
    made = desk.create([line(f"c{i}") for i in range(5)], "team")
    assert counts(made) == ("validating", 0, 0, 0)
    desk.move_on()
    assert counts(desk.get(made)) == ("in_progress", 5, 0, 0)
    first, second, *rest = desk.claim(5)
    assert first.params == json.dumps(line("c0")["body"])
    assert (first.model, first.task_type, first.owner, first.priority) == ("m", "chat", "team", 2)
    assert (first.batch_id, first.line) == (made.id, 1)
    for job in (*rest, second, first):
        result = f'{{"status_code":200,\n"request_id":"r","body":{{"n":{job.line}}}}}'
        assert desk.store.complete(job, result).result()
    desk.move_on()
    done = desk.get(made)
    assert counts(done) == ("completed", 5, 5, 0)
    assert done.error_file is None
    answers = desk.content(done.output_file)
    assert [answer["custom_id"] for answer in answers] == [f"c{i}" for i in range(5)]
    assert len({answer["id"] for answer in answers}) == 5
    assert answers[0] == {
        "id": answers[0]["id"],
        "custom_id": "c0",
        "response": {"status_code": 200, "request_id": "r", "body": {"n": 1}},
        "error": None,
    }
    assert answers[0]["id"].startswith("batch_req_")
    times = [done.created_at, done.in_progress_at, done.finalizing_at, done.completed_at]
    assert times == sorted(times, key=lambda at: at or 0.0)
    assert (done.failed_at, done.expired_at, done.cancelled_at) == (None, None, None)
    assert done.expires_at == pytest.approx(done.created_at + 86_400)
    assert desk.rows() == []
    file = desk.files.get(str(done.output_file), "team").result()
    assert file is not None
    assert (file.purpose, file.filename) == ("batch_output", f"{made.name}_output.jsonl")
    assert file.bytes == desk.files.path(file.name).stat().st_size


@pytest.mark.parametrize("break_", ["\x85", "\u2028", "\u2029"])
def test_an_answer_is_one_line_whatever_is_in_it(desk: Desk, break_: str) -> None:
    made = desk.create([line(f"a{break_}b"), line("c1")])
    desk.move_on()
    first, second = desk.claim(2)
    assert desk.store.complete(first, f'{{\r\n"text":\r"x{break_}y"\n}}').result()
    assert desk.store.fail(second, Failure(f"not{break_}now", "node_failed")).result()
    desk.move_on()
    done = desk.get(made)
    assert done.output_file is not None
    assert done.error_file is not None
    with desk.files.read(done.output_file) as file:
        (answer,) = map(json.loads, file.read().decode().splitlines())
    assert answer["custom_id"] == f"a{break_}b"
    assert answer["response"] == {"text": f"x{break_}y"}
    with desk.files.read(done.error_file) as file:
        (answer,) = map(json.loads, file.read().decode().splitlines())
    assert answer["error"]["message"] == f"not{break_}now"


def test_failures_go_into_a_file_of_their_own(desk: Desk) -> None:
    made = desk.create([line("a"), line("b"), line("c")])
    desk.move_on()
    refused = '{"status_code": 400, "request_id": "r", "body": {"error": "no"}}'
    desk.fail("invalid_request", refused)
    desk.fail()
    desk.run()
    desk.move_on()
    done = desk.get(made)
    assert counts(done) == ("completed", 3, 1, 2)
    assert [answer["custom_id"] for answer in desk.content(done.output_file)] == ["c"]
    first, second = desk.content(done.error_file)
    assert first["custom_id"] == "a"
    assert first["response"] == json.loads(refused)
    assert first["error"] == {"code": "invalid_request", "message": "it went wrong"}
    assert (second["response"], second["error"]["code"]) == (None, "node_failed")


def test_a_batch_in_which_everything_failed_has_no_output(desk: Desk) -> None:
    made = desk.create([line("a")])
    desk.move_on()
    desk.fail()
    desk.move_on()
    done = desk.get(made)
    assert counts(done) == ("completed", 1, 0, 1)
    assert done.output_file is None
    assert len(desk.content(done.error_file)) == 1


@pytest.mark.parametrize(
    ("endpoint", "task_type"),
    [
        ("/v1/embeddings", "embedding"),
        ("/v1/completions", "completion"),
        ("/v1/responses", "response"),
    ],
)
def test_each_endpoint_has_its_task_type(desk: Desk, endpoint: str, task_type: str) -> None:
    file = desk.upload(jsonl([{**line("a"), "url": endpoint}]))
    desk.batches.create("", NewBatch(file.name, endpoint))
    desk.move_on()
    assert [job.task_type for job in desk.claim()] == [task_type]


def test_lines_wait_with_their_model(desk: Desk) -> None:
    desk.create([line("a", "x"), line("b", "y"), line("c", "x")])
    desk.move_on()
    assert desk.store.depths().result() == {"model:x": 2, "model:y": 1}


def test_lines_are_told_of_and_do_not_count_as_jobs(desk: Desk) -> None:
    heard: list[Change] = []
    desk.store.changes.listeners.append(heard.append)
    made = desk.create([line("a"), line("b")])
    desk.move_on()
    assert {(one.status, one.batch_id) for one in heard} == {("queued", made.id)}
    assert len({one.id for one in heard}) == 2
    assert desk.store.list().result() == []


# -- what is wrong


def test_a_wrong_file_fails_the_batch_and_nothing_runs(desk: Desk) -> None:
    made = desk.create(jsonl([line("a")]) + b"{}\n")
    desk.move_on()
    done = desk.get(made)
    assert counts(done) == ("failed", 0, 0, 0)
    assert done.failed_at is not None
    assert json.loads(done.errors or "") == {
        "object": "list",
        "data": [{
            "code": "missing_required_parameter", "line": 2, "param": "custom_id",
            "message": "custom_id is missing.",
        }],
    }  # fmt: skip
    assert desk.rows() == []


def test_models_are_checked_for_the_owner(open_desk: Callable[..., Desk]) -> None:
    desk = open_desk(may_use=lambda owner, model: (owner, model) == ("team", "m"))
    good, bad = desk.create([line("a")], "team"), desk.create([line("a")], "other")
    desk.move_on()
    assert (desk.get(good).status, desk.get(bad).status) == ("in_progress", "failed")


def test_a_file_that_is_gone_fails_the_batch(desk: Desk) -> None:
    made = desk.create([line("a")])
    desk.files.path(made.input_file).unlink()
    desk.move_on()
    done = desk.get(made)
    assert done.status == "failed"
    assert "file_not_found" in (done.errors or "")


@pytest.mark.parametrize("harm", ["gone", "changed"])
def test_a_file_that_is_lost_while_it_is_loaded_fails_the_batch(
    desk: Desk, harm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_steps, "CHUNK_LINES", 2)
    made = desk.stop_while_loading(6, chunks=1)
    path = desk.files.path(made.input_file)
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b"POST", b"FAST"))
    desk.steps.stopping.clear()
    desk.move_on()
    assert desk.get(made).status == "failed"
    assert desk.rows() == []


@pytest.mark.parametrize(
    ("new", "param"),
    [
        ({"endpoint": "/v1/rerank"}, "endpoint"),
        ({"endpoint": ""}, "endpoint"),
        *(({"completion_window": text}, "completion_window")
          for text in ("", "24", "0h", "h", "15d", "337h", "-1h", "1w", "24H", "1.5h", "9999999h")),
        ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
        ({"metadata": {"k" * 65: ""}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
        ({"input_file": "file-" + "0" * 24}, "input_file_id"),
    ],
)  # fmt: skip
def test_a_batch_that_cannot_be_is_refused(desk: Desk, new: dict[str, Any], param: str) -> None:
    given = {"input_file": desk.upload(b"x").name, "endpoint": CHAT, **new}
    with pytest.raises(BadBatch) as caught:
        desk.batches.create("", NewBatch(**given))
    assert caught.value.param == param


def test_only_the_owner_s_own_files_of_the_right_purpose_can_be_run(desk: Desk) -> None:
    file, output = desk.upload(b"x", "team"), desk.upload(b"x", "", "batch_output")
    for name in (file.name, output.name):
        with pytest.raises(BadBatch):
            desk.batches.create("", NewBatch(name, CHAT))


def test_an_owner_has_only_so_many_unfinished(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.jobs.batches.service.OPEN_MAX", 2)
    first, _ = desk.create([line("a")]), desk.create([line("a")])
    with pytest.raises(BatchesFull):
        desk.create([line("a")])
    desk.create([line("a")], "somebody else")
    desk.batches.cancel(first.name, "")
    desk.create([line("a")])


# -- looking


def test_batches_are_listed_newest_first_for_their_owner_only(desk: Desk) -> None:
    made = [desk.create([line("a")], "team").name for _ in range(3)]
    other = desk.create([line("a")], "other")

    def names(limit: int, after: str | None = None) -> tuple[list[str], bool]:
        page = desk.batches.list("team", limit, after).result()
        assert page is not None
        return [one.name for one in page.batches], page.has_more

    assert names(20) == (made[::-1], False)
    assert names(2) == ([made[2], made[1]], True)
    assert names(2, made[1]) == ([made[0]], False)
    assert desk.batches.list("team", 2, other.name).result() is None
    assert desk.batches.get(other.name, "team").result() is None
    assert desk.batches.cancel(other.name, "team") is None
