"""Other names for models, models that stand in for others, and what that changes: one word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..conftest import CHAT, OK

if TYPE_CHECKING:
    from ..conftest import Rig


async def test_an_alias_rewrites_the_model_and_not_one_byte_more(rig: Rig) -> None:
    node = await rig.node(models=("llama",))
    await rig.start(node, models={"aliases": {"gpt": "llama"}})
    client = await rig.client()
    body = '{ "x" : {"model":"gpt"},\t"mödel": 1.0e5 , "model" :  "gpt"  ,"s":"\\u0041 model" }'
    await client.post(CHAT, body.encode())
    call = await node.next_call()
    assert call.body.decode() == body.replace('"model" :  "gpt"', '"model" :  "llama"')
    assert call.headers["content-length"] == str(len(call.body))
    await call.answer(OK)
    assert (await client.reply()).headers["x-forebay-model"] == "llama"


async def test_a_model_that_is_written_with_escapes_is_found_and_rewritten(rig: Rig) -> None:
    node = await rig.node(models=("llama",))
    await rig.start(node, models={"aliases": {"gpt": "llama"}})
    client = await rig.client()
    await client.post(CHAT, b'{"\\u006dodel": "g\\u0070t"}')
    assert (await node.next_call()).body == b'{"\\u006dodel": "llama"}'


async def test_an_alias_of_an_alias_is_followed_to_its_end(rig: Rig) -> None:
    node = await rig.node(models=("llama",))
    await rig.start(node, models={"aliases": {"best": "good", "good": "llama"}})
    _, call = await rig.run(node, model="best")
    assert call.json["model"] == "llama"


async def test_aliases_are_listed_beside_the_models_they_stand_for(rig: Rig) -> None:
    node = await rig.node(models=("llama",))
    await rig.start(node, models={"aliases": {"gpt": "llama", "gone": "nowhere"}})
    listed = (await rig.get("/v1/models")).json["data"]
    assert [model["id"] for model in listed] == ["gpt", "llama"]
    assert (await rig.get("/v1/models/gpt")).json["id"] == "gpt"
    assert (await rig.get("/v1/models/gone")).status == 404


async def test_a_fallback_runs_where_no_node_knows_the_model(rig: Rig) -> None:
    node = await rig.node(models=("small",))
    await rig.start(node, models={"fallbacks": {"big": ["medium", "small"]}})
    client, call = await rig.run(node, model="big")
    assert call.json["model"] == "small"
    await call.answer(OK)
    headers = (await client.reply()).headers
    assert (headers["x-forebay-model"], headers["x-queue-status"]) == ("small", "direct")


async def test_a_fallback_is_tried_before_any_waiting(rig: Rig) -> None:
    big, small = await rig.node(models=("big",)), await rig.node(models=("small",))
    await rig.start(big, small, models={"fallbacks": {"big": ["small"]}})
    await rig.run(big, model="big")
    client, call = await rig.run(small, model="big")
    await call.answer(OK)
    assert (await client.reply()).headers["x-queue-status"] == "direct"


async def test_with_all_fallbacks_busy_a_request_waits_for_the_model_it_asked_for(
    rig: Rig,
) -> None:
    big, small = await rig.node(models=("big",)), await rig.node(models=("small",))
    await rig.start(big, small, models={"fallbacks": {"big": ["small"]}})
    _, first = await rig.run(big, model="big")
    await rig.run(small, model="small")
    [client] = await rig.line_up(1, model="big")
    await first.answer(OK)
    call = await big.next_call()
    assert call.json["model"] == "big"
    await call.answer(OK)
    assert "x-forebay-model" not in (await client.reply()).headers


async def test_a_fallback_stands_in_for_a_model_whose_nodes_are_down(rig: Rig) -> None:
    big, small = await rig.node(models=("big",)), await rig.node(models=("small",))
    await rig.start(big, small, models={"fallbacks": {"big": ["small"]}})
    big.health = "error"
    await rig.until_node("n1", "offline")
    _, call = await rig.run(small, model="big")
    assert call.json["model"] == "small"


async def test_the_fallbacks_of_what_an_alias_stands_for_hold_for_the_alias(rig: Rig) -> None:
    node = await rig.node(models=("small",))
    models = {"aliases": {"gpt": "big", "tiny": "small"}, "fallbacks": {"big": ["tiny"]}}
    await rig.start(node, models=models)
    _, call = await rig.run(node, model="gpt")
    assert call.json["model"] == "small"


async def test_without_any_model_that_runs_the_one_asked_for_is_not_found(rig: Rig) -> None:
    await rig.start(await rig.node(), models={"fallbacks": {"big": ["medium"]}})
    reply = await (await rig.ask(model="big")).reply()
    assert (reply.status, reply.json["error"]["code"]) == (404, "model_not_found")


async def test_a_model_of_its_own_name_is_passed_on_untouched(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, models={"aliases": {"gpt": "m"}, "fallbacks": {"m": ["other"]}})
    client = await rig.client()
    body = b'{"model"  :"m"}'
    await client.post(CHAT, body)
    assert (await node.next_call()).body == body


async def test_a_body_of_half_a_megabyte_is_rewritten_just_so(rig: Rig) -> None:
    node = await rig.node(models=("llama",))
    await rig.start(node, models={"aliases": {"gpt": "llama"}})
    client = await rig.client()
    padding = b'"pad": "' + b"x" * 600_000 + b'", '
    await client.post(CHAT, b'{%b"model": "gpt"}' % padding)
    assert (await node.next_call()).body == b'{%b"model": "llama"}' % padding


@pytest.mark.parametrize("answer", [404, 200])
async def test_a_node_that_has_lost_the_model_is_asked_anew_and_another_one_serves(
    rig: Rig, answer: int
) -> None:
    first, second = await rig.node(), await rig.node()
    await rig.start(first, second)
    client, call = await rig.run(first)
    if answer == 404:
        probes = first.probes
        first.models = ()
        await call.answer({"error": "model not found"}, 404)
        await first.probed(probes + 1)
        call = await second.next_call()
    await call.answer(OK)
    assert (await client.reply()).headers["x-forebay-node"] == ("n2" if answer == 404 else "n1")


async def test_a_404_of_the_only_node_passes_through(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node)
    client, call = await rig.run(node)
    await call.answer({"error": "model not found"}, 404)
    reply = await client.reply()
    assert (reply.status, reply.json) == (404, {"error": "model not found"})


async def test_a_body_with_a_number_of_any_length_is_rewritten_like_any_other(rig: Rig) -> None:
    node = await rig.node()
    await rig.start(node, models={"aliases": {"nick": "m"}})
    rest = b',"x":' + b"1" * 70_000 + b"}"
    client = await rig.client()
    await client.post("/v1/chat/completions", b'{"model":"nick"' + rest)
    call = await node.next_call()
    assert call.body == b'{"model":"m"' + rest
    await call.answer(OK)
    assert (await client.reply()).status == 200
