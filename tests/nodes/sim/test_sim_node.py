"""The simulated node over real sockets, asked by the real clients of both vendors."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import httpx
import msgspec
import pytest
from openai import AsyncOpenAI

from forebay.nodes import ADAPTERS, NodeReport
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode

from ..asking import LIMIT_S, HttpxFetch

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

PROMPT = "How long is the queue?"
FOR_EVER_S = 3600.0


class Watch(dict[str, int]):
    """The running requests by model; wakes whoever waits for a change."""

    def __init__(self, running: dict[str, int]) -> None:
        super().__init__(running)
        self.changed = asyncio.Event()

    def __setitem__(self, model: str, count: int) -> None:
        super().__setitem__(model, count)
        self.changed.set()

    async def reaches(self, count: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while sum(self.values()) != count:
                self.changed.clear()
                await self.changed.wait()


@contextlib.asynccontextmanager
async def running(options: SimOptions) -> AsyncIterator[SimNode]:
    node = SimNode(options)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


@pytest.fixture
async def fast() -> AsyncIterator[SimNode]:
    options = SimOptions(models=("a", "b"), slots=2, ttft_s=0.0, tokens_per_second=0.0)
    async with running(options) as node:
        yield node


@pytest.fixture
async def openai(fast: SimNode) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{fast.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def anthropic(fast: SimNode) -> AsyncIterator["AsyncAnthropic"]:
    from anthropic import AsyncAnthropic  # which takes two seconds

    async with AsyncAnthropic(base_url=fast.url, api_key="none", max_retries=0) as client:
        yield client


def plain(node: SimNode) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=node.url, timeout=LIMIT_S, trust_env=False)


def chat(**more: object) -> dict[str, object]:
    return {"model": "a", "messages": [{"role": "user", "content": PROMPT}], **more}


async def test_its_adapter_learns_everything_from_it(fast: SimNode) -> None:
    async with HttpxFetch(fast.url) as fetch:
        report = await ADAPTERS["sim"].probe(fetch)
    assert report == NodeReport(
        models=("a", "b"),
        families=("openai", "anthropic"),
        kind="sim",
        slots=2,
        gpu_load=0.0,
        about={key: {"created": 0, "owned_by": "forebay-sim"} for key in ("a", "b")},
        version=report.version,
    )


async def test_its_adapter_learns_what_is_in_memory() -> None:
    options = SimOptions(models=("a", "b"), load_s=FOR_EVER_S)
    async with running(options) as node, HttpxFetch(node.url) as fetch:
        assert (await ADAPTERS["sim"].probe(fetch)).loaded == ()
        with node.engine.slot("b"):
            assert (await ADAPTERS["sim"].probe(fetch)).loaded == ("b",)


async def test_its_adapter_learns_how_busy_and_how_full_its_gpu_is() -> None:
    options = SimOptions(models=("a@6", "b@6"), slots=2, load_s=FOR_EVER_S, vram_gb=8.0)
    async with running(options) as node, HttpxFetch(node.url) as fetch:
        with node.engine.slot("a"):
            report = await ADAPTERS["sim"].probe(fetch)
    assert report.gpu_load == 0.5
    assert (report.vram_used_bytes, report.vram_total_bytes) == (6 << 30, 8 << 30)


async def test_health_and_props_answer(fast: SimNode) -> None:
    async with plain(fast) as client:
        assert (await client.get("/health")).json() == {"status": "ok"}
        assert (await client.get("/props")).json()["total_slots"] == 2


async def test_openai_chat(openai: AsyncOpenAI) -> None:
    answer = await openai.chat.completions.create(
        model="a", messages=[{"role": "user", "content": PROMPT}]
    )
    assert "simulated answer" in str(answer.choices[0].message.content)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_openai_chat_as_a_stream(openai: AsyncOpenAI) -> None:
    stream = await openai.chat.completions.create(
        model="a",
        messages=[{"role": "user", "content": PROMPT}],
        max_tokens=5,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    words = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert "".join(word or "" for word in words) == "This is a simulated answer:"
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 5


async def test_openai_completions(openai: AsyncOpenAI) -> None:
    answer = await openai.completions.create(model="a", prompt=PROMPT, max_tokens=4)
    assert answer.choices[0].text == "This is a simulated"
    stream = await openai.completions.create(model="a", prompt=PROMPT, max_tokens=4, stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == "This is a simulated"


async def test_openai_embeddings_in_both_encodings(openai: AsyncOpenAI) -> None:
    packed = await openai.embeddings.create(model="a", input=["x", "y"])
    listed = await openai.embeddings.create(model="a", input="x", encoding_format="float")
    assert [item.index for item in packed.data] == [0, 1]
    assert packed.data[0].embedding == pytest.approx(listed.data[0].embedding)


async def test_openai_responses(openai: AsyncOpenAI) -> None:
    answer = await openai.responses.create(model="a", input=PROMPT)
    assert "simulated answer" in answer.output_text
    assert answer.status == "completed"
    assert answer.usage is not None
    assert answer.usage.output_tokens > 0


async def test_openai_responses_as_a_stream(openai: AsyncOpenAI) -> None:
    async with openai.responses.stream(model="a", input=PROMPT) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert "response.output_text.delta" in kinds
    assert "simulated answer" in final.output_text


async def test_anthropic_messages(anthropic: "AsyncAnthropic") -> None:
    answer = await anthropic.messages.create(
        model="a", max_tokens=3, messages=[{"role": "user", "content": PROMPT}]
    )
    assert [block.text for block in answer.content if block.type == "text"] == ["This is a"]
    assert answer.stop_reason == "max_tokens"
    assert answer.usage.output_tokens == 3


async def test_anthropic_messages_as_a_stream(anthropic: "AsyncAnthropic") -> None:
    async with anthropic.messages.stream(
        model="a", max_tokens=1000, messages=[{"role": "user", "content": PROMPT}]
    ) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        final = await stream.get_final_message()
    assert "simulated answer" in text
    assert final.stop_reason == "end_turn"
    assert final.usage.output_tokens == len(text.split())


STREAMS = {
    "/v1/chat/completions": ["", "", "", "", "DONE"],
    "/v1/completions": ["", "", "", "DONE"],
    "/v1/messages": [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ],
    "/v1/responses": [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ],
}


@pytest.mark.parametrize("path", STREAMS)
async def test_streams_are_events_with_nothing_between_and_nothing_missing(
    fast: SimNode, path: str
) -> None:
    body = chat(prompt=PROMPT, input=PROMPT, max_tokens=2, stream=True)
    async with plain(fast) as client:
        answer = await client.post(path, json=body)
    assert answer.headers["content-type"] == "text/event-stream"
    *events, rest = answer.text.split("\n\n")
    assert rest == ""
    names = []
    for lines in map(str.splitlines, events):
        names.append(lines[0].removeprefix("event: ") if len(lines) == 2 else "")
        data = lines[-1].removeprefix("data: ")
        if data == "[DONE]":
            names[-1] = "DONE"
        else:
            assert msgspec.json.decode(data).get("type", "") == names[-1]
    assert names == STREAMS[path]


async def test_a_request_beyond_the_slots_is_told_to_come_back(fast: SimNode) -> None:
    async with plain(fast) as client:
        with fast.engine.slot("a"), fast.engine.slot("b"):
            answer = await client.post("/v1/chat/completions", json=chat())
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert "busy" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"[" * 100_000, 400),
        (b'{"model": 7, "messages": [1]}', 400),
        (b'{"model": "a"}', 400),
        (b'{"model": "other", "messages": [{}]}', 404),
    ],
)
async def test_requests_that_make_no_sense_are_refused(
    fast: SimNode, body: bytes, status: int
) -> None:
    async with plain(fast) as client:
        assert (await client.post("/v1/chat/completions", content=body)).status_code == status
    assert fast.engine.busy == 0


async def test_a_failure_that_was_asked_for_is_a_500() -> None:
    async with running(SimOptions(models=("a",), fail_rate=1.0)) as node, plain(node) as client:
        answer = await client.post("/v1/chat/completions", json=chat())
    assert answer.status_code == 500


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
@pytest.mark.parametrize("ttft_s", [FOR_EVER_S, 0.0], ids=["before the first byte", "after it"])
async def test_it_stops_at_once_when_the_client_goes(stream: bool, ttft_s: float) -> None:
    options = SimOptions(models=("a",), ttft_s=ttft_s, tokens_per_second=1 / FOR_EVER_S)
    async with running(options) as node:
        watch = node.engine.running = Watch(node.engine.running)
        async with plain(node) as client:
            asking = asyncio.create_task(
                client.post("/v1/chat/completions", json=chat(stream=stream))
            )
            await watch.reaches(1)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await watch.reaches(0)
        assert node.engine.aborted == 1


async def test_stopping_breaks_off_what_runs_and_frees_the_port() -> None:
    node = SimNode(SimOptions(models=("a",), ttft_s=FOR_EVER_S))
    await node.start()
    await node.start()
    watch = node.engine.running = Watch(node.engine.running)
    async with plain(node) as client:
        asking = asyncio.create_task(client.post("/v1/chat/completions", json=chat()))
        await watch.reaches(1)
        await node.stop()
        await node.stop()
        await watch.reaches(0)
        (failure,) = await asyncio.gather(asking, return_exceptions=True)
        assert isinstance(failure, httpx.HTTPError | httpx.Response)
        with pytest.raises(httpx.ConnectError):
            await client.get("/health")


async def test_a_node_that_stops_logs_no_error(caplog: pytest.LogCaptureFixture) -> None:
    node = SimNode(SimOptions())
    await node.start()
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{node.url}/health")).status_code == 200
        await node.stop()
    assert [line.message for line in caplog.records if line.name.startswith("uvicorn")] == []


def test_no_answer_waits_for_a_confirmation_of_the_last_packet() -> None:
    """On asyncio's own loop, as `forebay sim-node` runs; 40 ms for each answer otherwise."""

    async def delays() -> int:
        async with running(SimOptions()) as node, httpx.AsyncClient(base_url=node.url) as client:
            assert (await client.get("/health")).status_code == 200
            assert node._server is not None
            (connection,) = node._server.server_state.connections
            sock = connection.transport.get_extra_info("socket")
            return int(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    assert asyncio.run(delays())
