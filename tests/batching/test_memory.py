"""Requests and the memory they need."""

import math
from collections import UserDict

import pytest

from forebay.batching import (
    DEFAULT_MAX_TOKENS,
    MemoryEstimator,
    ModelShape,
    Request,
    RequestQueue,
)

LLAMA_3_1_8B = ModelShape(layers=32, kv_heads=8, head_dim=128, bytes=2)


def test_the_estimate_is_the_key_value_cache_of_prompt_and_answer() -> None:
    estimate = MemoryEstimator(LLAMA_3_1_8B, tokenizer=str.split)
    request = Request("a", "three small words", max_tokens=1021)
    assert estimate(request) == (3 + 1021) * 2 * 32 * 8 * 128 * 2 == 128 * 2**20


def test_all_of_max_tokens_count() -> None:
    estimate = MemoryEstimator(ModelShape(1, 1, 1, 1), tokenizer=str.split)
    assert estimate(Request("a", "word", max_tokens=100_000)) == 2 * 100_001


@pytest.mark.parametrize(
    ("shape", "bytes_per_token"),
    [
        (ModelShape(layers=1, kv_heads=1, head_dim=1, bytes=1), 2),
        (ModelShape(layers=3, kv_heads=1, head_dim=1, bytes=1), 6),
        (ModelShape(layers=1, kv_heads=5, head_dim=1, bytes=1), 10),
        (ModelShape(layers=1, kv_heads=1, head_dim=7, bytes=1), 14),
        (ModelShape(layers=1, kv_heads=1, head_dim=1, bytes=4), 8),
        (ModelShape(layers=1, kv_heads=1, head_dim=1), 4),
    ],
)
def test_each_number_of_the_shape_counts(shape: ModelShape, bytes_per_token: int) -> None:
    assert shape.bytes_per_token == bytes_per_token


def test_a_cache_of_half_bytes_is_rounded_up() -> None:
    assert ModelShape(layers=1, kv_heads=1, head_dim=1, bytes=0.25).memory_bytes(3) == 2


def test_a_prompt_made_into_tokens_already_asks_no_tokenizer() -> None:
    def tokenizer(text: str) -> list[int]:
        raise AssertionError(text)

    estimate = MemoryEstimator(ModelShape(1, 1, 1, 1), tokenizer)
    assert estimate(Request("a", [11, 12, 13], max_tokens=2)) == 2 * 5


def test_a_tokenizer_that_gives_a_mapping_is_refused_saying_what_to_pass() -> None:
    estimate = MemoryEstimator(
        LLAMA_3_1_8B, lambda text: UserDict(input_ids=[1], attention_mask=[1])
    )
    with pytest.raises(TypeError, match=r"'input_ids'.*'a'.*tokenizer\.encode"):
        estimate(Request("a", "word"))


def test_without_an_estimator_the_queue_assumes_a_model_of_eight_billion() -> None:
    queue = RequestQueue()
    queue.enqueue(Request("a", "x" * 400, max_tokens=28))
    assert queue.get_requests(1, 128 * 131_072 - 1) == []
    assert [request.id for request in queue.get_requests(1, 128 * 131_072)] == ["a"]


def test_a_prompt_that_is_not_proper_text_can_still_be_estimated() -> None:
    queue = RequestQueue()
    queue.enqueue(Request("a", "\ud800", max_tokens=1))
    assert queue.dequeue().memory_bytes == 2 * 131_072


@pytest.mark.parametrize(
    ("numbers", "error", "message"),
    [
        ((0, 8, 128, 2), ValueError, "layers must be at least 1, not 0"),
        ((32, -8, 128, 2), ValueError, "kv_heads must be at least 1, not -8"),
        ((32, 8, 1.5, 2), TypeError, "head_dim must be a whole number, not 1.5"),
        ((32, 8, 128, 0), ValueError, "bytes must be a positive number, not 0"),
        ((32, 8, 128, math.nan), ValueError, "bytes must be a positive number, not nan"),
        ((32, 8, 128, math.inf), ValueError, "bytes must be a positive number, not inf"),
    ],
)
def test_a_senseless_shape_is_refused_naming_the_number(
    numbers: tuple[int, int, int, float], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ModelShape(*numbers)


@pytest.mark.parametrize("max_tokens", [0, -1, -100])
def test_max_tokens_of_zero_or_less_means_the_default(max_tokens: int) -> None:
    assert Request("a", "word", max_tokens=max_tokens).max_tokens == DEFAULT_MAX_TOKENS


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"id": ""}, ValueError, "id must not be empty"),
        ({"id": 7}, TypeError, "id must be a str, not 7"),
        ({"id": None}, TypeError, "id must be a str, not None"),
        ({"max_tokens": 1.5}, TypeError, "max_tokens must be a whole number, not 1.5"),
        ({"max_tokens": True}, TypeError, "max_tokens must be a whole number, not True"),
        ({"cancel": "token"}, TypeError, "cancel must be a CancelToken or None, not 'token'"),
    ],
)
def test_a_senseless_request_is_refused_naming_the_field(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Request(**{"id": "a", "prompt": "word", **arguments})  # type: ignore[arg-type]  # wrong


def test_two_requests_are_equal_only_if_they_are_the_same() -> None:
    request = Request("a", "word")
    assert request == request
    assert request != Request("a", "word")
    assert len({request, Request("a", "word")}) == 2
