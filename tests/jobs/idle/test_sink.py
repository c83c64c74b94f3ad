"""What is recorded of a node's answer to a job, or of the reason there is none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest

from forebay.jobs.idle.sink import Answered, to_outcome
from forebay.jobs.job import Failure, StoredJob
from forebay.jobs.outcomes import CancelledHere, Completed, Requeued
from forebay.relay.problem import Problem

if TYPE_CHECKING:
    from forebay.jobs.outcomes import Outcome


def job(batch_id: int | None = None) -> StoredJob:
    given = dict.fromkeys(StoredJob.__struct_fields__) | {"id": 1, "batch_id": batch_id}
    return StoredJob(**cast("Any", given))


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answered(200, b'{"a": 1}'), Completed('{"a": 1}')),
        (Answered(200, b"no JSON"), Failure("the node's answer is not JSON", "node_failed")),
        (
            Answered(400, b'{"error": {"message": "too long"}}'),
            Failure(
                "the node answered 400: too long",
                "node_refused",
                result='{"error": {"message": "too long"}}',
            ),
        ),
        (Answered(500, b"oops"), Failure("the node answered 500: oops", "node_failed")),
        (Problem("shutting_down", "it ends"), Requeued()),
        (Problem("cancelled", "by an admin"), CancelledHere()),
        (Problem("node_failed", "it hung up"), Failure("it hung up", "node_failed")),
    ],
)
def test_an_answer_becomes_an_outcome(answer: Answered | Problem, outcome: Outcome) -> None:
    assert to_outcome(job(), "request-1", answer) == outcome


def test_the_result_of_a_batchs_line_is_what_its_output_file_says() -> None:
    outcome = to_outcome(job(batch_id=7), "request-1", Answered(200, b'{"a": 1}'))
    assert isinstance(outcome, Completed)
    assert json.loads(outcome.result) == {
        "status_code": 200,
        "request_id": "request-1",
        "body": {"a": 1},
    }
