"""What nodes say of a model or a route that they do not have, in the words of real servers."""

from __future__ import annotations

import pytest

from forebay.relay.answer import what_is_absent

MODEL = [
    b'{"object":"error","message":"The model `tiny` does not exist.","type":"NotFoundError",'
    b'"param":null,"code":404}',
    b'{"error":{"message":"The model `tiny` does not exist.","type":"NotFoundError",'
    b'"param":"model","code":404}}',
    b'{"error":"model \'tiny\' not found"}',
    b'{"error":{"message":"model \\"tiny\\" not found, try pulling it first","type":"api_error"}}',
    b'{"type":"error","error":{"type":"not_found_error","message":"model: tiny"}}',
    b'{"error":"tiny is not here"}',
    b'{"error":"gone"}',
    b"{}",
]
ROUTE = [
    b'{"detail":"Not Found"}',
    b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}',
    b"404 page not found",
    b"Not Found",
    b"<pre>Cannot POST /v1/rerank</pre>",
    b'{"error":"Unexpected endpoint or method. (POST /v1/rerank)"}',
    b'{"error":{"code":"route_not_supported","message":"no node of this model has /v1/rerank"}}',
    b'{"error":{"message":"there is nothing at /v1/rerank; see /openapi.json","code":"not_found"}}',
    b"",
]
NOT_BUILT = (
    b'{"error":{"code":501,"message":"This server does not support embeddings. Start it with '
    b'`--embeddings`","type":"not_supported_error"}}'
)


@pytest.mark.parametrize("body", MODEL)
@pytest.mark.parametrize("is_rare", [True, False])
def test_a_404_that_speaks_of_the_model_is_about_the_model(body: bytes, is_rare: bool) -> None:
    assert what_is_absent(404, body, "tiny", is_rare=is_rare) == "model"


@pytest.mark.parametrize("body", ROUTE)
@pytest.mark.parametrize("is_rare", [True, False])
def test_a_404_in_the_words_of_a_web_server_is_about_the_route(body: bytes, is_rare: bool) -> None:
    assert what_is_absent(404, body, "tiny", is_rare=is_rare) == "route"


def test_letters_of_a_short_name_in_other_words_are_not_that_name() -> None:
    assert what_is_absent(404, b'{"detail":"Not Found"}', "a", is_rare=True) == "route"
    assert what_is_absent(404, b'{"error":"no a here"}', "a", is_rare=True) == "model"


def test_405_and_501_are_about_the_route_where_not_every_server_has_it() -> None:
    assert what_is_absent(501, NOT_BUILT, "tiny", is_rare=True) == "route"
    assert what_is_absent(405, b'{"detail":"Method Not Allowed"}', "tiny", is_rare=False) == "route"
    assert what_is_absent(501, b'{"error":"no such field"}', "tiny", is_rare=False) == ""


def test_a_200_of_lm_studio_may_say_that_there_is_nothing() -> None:
    said = b'{"error":"Unexpected endpoint or method. (POST /v1/rerank). Returning 200 anyway"}'
    assert what_is_absent(200, said, "tiny", is_rare=True) == "route"
    assert what_is_absent(200, b'{"results":[]}', "tiny", is_rare=True) == ""


@pytest.mark.parametrize("status", [200, 400, 409, 413, 422, 500, 502])
def test_other_answers_say_nothing_of_it(status: int) -> None:
    assert what_is_absent(status, b"Not Found", "tiny", is_rare=True) == ""
