"""One file per family: its routes, its error bodies, what a stream of it looks like."""

from __future__ import annotations

import json

import pytest

from forebay.relay.anthropic import ANTHROPIC
from forebay.relay.ollama import OLLAMA
from forebay.relay.openai import OPENAI
from forebay.relay.problem import Problem, node_failed

PROBLEM = Problem("queue_timeout", "too long", "model", 3.0, {"waited_seconds": 60.0})


def test_every_route_of_the_design_is_in_its_family() -> None:
    assert set(OPENAI.routes) == {
        "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/rerank",
        "/v1/moderations", "/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech",
        "/v1/images/generations", "/v1/images/edits", "/v1/images/variations",
    }  # fmt: skip
    assert OPENAI.free_routes == ("/tokenize", "/detokenize")
    assert ANTHROPIC.routes == ("/v1/messages",)
    assert ANTHROPIC.free_routes == ("/v1/messages/count_tokens",)
    assert OLLAMA.routes == ("/api/chat", "/api/generate", "/api/embed", "/api/embeddings")
    assert OLLAMA.free_routes == ("/api/show",)


def test_openai_s_error_has_everything_inside() -> None:
    assert OPENAI.error(PROBLEM, "text", 504) == {
        "error": {
            "message": "text", "type": "queue_timeout", "code": "queue_timeout", "param": "model",
            "waited_seconds": 60.0,
        }
    }  # fmt: skip


def test_anthropic_s_error_has_its_envelope() -> None:
    body = ANTHROPIC.error(PROBLEM, "text", 504)
    assert isinstance(body, dict)
    assert body["type"] == "error"
    assert body["error"] == {
        "type": "timeout_error", "message": "text", "code": "queue_timeout", "param": "model",
        "waited_seconds": 60.0,
    }  # fmt: skip


def test_ollama_s_error_is_a_text_beside_its_code() -> None:
    assert OLLAMA.error(PROBLEM, "text", 504) == {
        "error": "text", "code": "queue_timeout", "param": "model", "waited_seconds": 60.0,
    }  # fmt: skip


def test_each_family_says_it_in_a_stream_as_its_clients_read_it() -> None:
    problem = node_failed("it died", "n1", 2)
    data = OPENAI.stream_error(problem, "text", 502)
    assert json.loads(data.removeprefix(b"data: "))["error"]["cause"] == "it died"
    event = ANTHROPIC.stream_error(problem, "text", 502)
    assert event.startswith(b"event: error\ndata: ")
    assert data.endswith(b"\n\n")
    assert event.endswith(b"\n\n")
    line = OLLAMA.stream_error(problem, "text", 502)
    assert line.count(b"\n") == 1
    assert json.loads(line)["attempts"] == 2


@pytest.mark.parametrize("family", [OPENAI, ANTHROPIC, OLLAMA], ids=lambda family: family.name)
def test_a_message_with_line_breaks_cannot_break_a_stream(family: object) -> None:
    assert family in (OPENAI, ANTHROPIC, OLLAMA)
    for known in (OPENAI, ANTHROPIC, OLLAMA):
        text = known.stream_error(PROBLEM, "one\n\ndata: [DONE]\r\n", 504)
        assert b"\ndata: [DONE]" not in text
        assert b"\r" not in text


def test_only_ollama_has_no_comments_and_writes_lines() -> None:
    assert (OPENAI.comments, ANTHROPIC.comments, OLLAMA.comments) == (True, True, False)
    assert OPENAI.stream_type == ANTHROPIC.stream_type == b"text/event-stream"
    assert OLLAMA.stream_type == b"application/x-ndjson"
