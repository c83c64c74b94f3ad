"""The stock `openai` SDK's batch workflow, unchanged, run by a real llama.cpp."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import openai
import pytest

from harness.polling import pause

from .conftest import LIMIT_S, MODEL

if TYPE_CHECKING:
    from .conftest import Stage

PAGE = Path(__file__).parent.parent.parent / "docs" / "batches.md"
CHAT = "/v1/chat/completions"
ENDED = ("completed", "failed", "expired", "cancelled")


def lines(count: int) -> bytes:
    return b"".join(
        json.dumps(
            {"custom_id": f"c{i}", "method": "POST", "url": CHAT,
             "body": {"model": MODEL, "messages": [{"role": "user", "content": str(i)}],
                      "max_tokens": 4}}
        ).encode() + b"\n"
        for i in range(count)
    )  # fmt: skip


@pytest.fixture
async def gateway(stage: Stage, tmp_path: Path, llama_url: str) -> Stage:
    await stage.start(llama_url, jobs={"database": f"sqlite:///{tmp_path}/jobs.db"})
    return stage


def until_ended(client: openai.OpenAI, batch_id: str) -> Any:
    while True:
        batch = client.batches.retrieve(batch_id)
        if batch.status in ENDED:
            return batch


async def test_a_batch_from_upload_to_download(gateway: Stage) -> None:
    def work() -> None:
        with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:
            file = client.files.create(file=("in.jsonl", lines(20)), purpose="batch")
            assert (file.object, file.purpose, file.filename) == ("file", "batch", "in.jsonl")
            assert file.bytes == len(lines(20))
            batch = client.batches.create(
                input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h",
                metadata={"why": "a test"},
            )  # fmt: skip
            assert batch.status == "validating"
            done = until_ended(client, batch.id)
            assert done.status == "completed"
            assert done.request_counts.total == done.request_counts.completed == 20
            assert done.metadata == {"why": "a test"}
            assert done.error_file_id is None
            answers = client.files.content(done.output_file_id).text.splitlines()
            read = [json.loads(text) for text in answers]
            assert [one["custom_id"] for one in read] == [f"c{i}" for i in range(20)]
            bodies = [one["response"]["body"] for one in read]
            assert {body["object"] for body in bodies} == {"chat.completion"}
            assert all(0 < body["usage"]["completion_tokens"] <= 4 for body in bodies)
            assert [one.id for one in client.batches.list()] == [batch.id]
            assert client.files.retrieve(file.id) == file
            assert {one.id for one in client.files.list()} == {file.id, done.output_file_id}
            assert [one.id for one in client.files.list(purpose="batch")] == [file.id]
            assert client.files.delete(file.id).deleted is True
            with pytest.raises(openai.NotFoundError):
                client.files.retrieve(file.id)

    async with asyncio.timeout(LIMIT_S):
        await asyncio.to_thread(work)


async def test_a_batch_of_responses(gateway: Stage) -> None:
    asked = [
        {"custom_id": f"c{i}", "method": "POST", "url": "/v1/responses",
         "body": {"model": MODEL, "input": f"Say {i}.", "max_output_tokens": 4}}
        for i in range(3)
    ]  # fmt: skip
    stored = {**asked[0], "body": {**asked[0]["body"], "previous_response_id": "resp_1"}}  # type: ignore[dict-item]

    def work() -> None:
        with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:
            ended = []
            for requests in (asked, [stored]):
                text = b"".join(json.dumps(one).encode() + b"\n" for one in requests)
                file = client.files.create(file=("in.jsonl", text), purpose="batch")
                batch = client.batches.create(
                    input_file_id=file.id, endpoint="/v1/responses", completion_window="24h"
                )
                ended.append(until_ended(client, batch.id))
            done, refused = ended
            assert (done.status, done.request_counts.completed) == ("completed", 3)
            answers = client.files.content(done.output_file_id).text.splitlines()
            bodies = [json.loads(one)["response"]["body"] for one in answers]
            assert {body["object"] for body in bodies} == {"response"}
            assert all(body["output"][0]["content"] for body in bodies)
            assert refused.status == "failed"
            (fault,) = refused.errors.data
            assert (fault.code, fault.param) == ("unsupported", "body.previous_response_id")

    async with asyncio.timeout(LIMIT_S):
        await asyncio.to_thread(work)


async def test_lists_are_paged_through(gateway: Stage) -> None:
    def work() -> None:
        with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:
            files = [client.files.create(file=lines(1), purpose="batch").id for _ in range(5)]
            made = [
                client.batches.create(
                    input_file_id=one, endpoint="/v1/chat/completions", completion_window="24h"
                ).id
                for one in files
            ]
            assert [one.id for one in client.batches.list(limit=2)] == made[::-1]
            listed = [one.id for one in client.files.list(limit=2, order="asc")]
            assert listed[: len(files)] == files  # outputs of what has ended already come after

    await asyncio.to_thread(work)


async def test_a_batch_is_cancelled_and_errors_are_read(stage: Stage, tmp_path: Path) -> None:
    node = await stage.fake_node(models=(MODEL,))
    gateway = stage
    await stage.start(node.url, jobs={"database": f"sqlite:///{tmp_path}/jobs.db"})
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:
        file = await client.files.create(file=lines(3), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        await (await node.next_call()).answer({"choices": []})
        second = await node.next_call()
        with pytest.raises(openai.ConflictError):
            await client.files.delete(file.id)
        cancelled = await client.batches.cancel(batch.id)
        await second.gone()  # aborted at the node
        assert cancelled.status in ("cancelling", "cancelled")
        async with asyncio.timeout(LIMIT_S):
            while cancelled.status != "cancelled":
                await pause()
                cancelled = await client.batches.retrieve(batch.id)
        assert cancelled.error_file_id is not None
        errors = await client.files.content(cancelled.error_file_id)
        codes = [json.loads(text)["error"]["code"] for text in errors.text.splitlines()]
        assert codes == ["batch_cancelled"] * 2
        with pytest.raises(openai.BadRequestError) as caught:
            await client.batches.create(
                input_file_id=file.id, endpoint="/v1/rerank", completion_window="24h"
            )
        assert caught.value.param == "endpoint"


async def test_what_is_wrong_with_a_file_is_read(gateway: Stage) -> None:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none") as client:
        file = await client.files.create(file=lines(1) + b"{}\n", purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        async with asyncio.timeout(LIMIT_S):
            while batch.status not in ENDED:
                await pause()
                batch = await client.batches.retrieve(batch.id)
        assert batch.status == "failed"
        assert batch.errors is not None
        assert batch.errors.data is not None
        (error,) = batch.errors.data
        assert (error.line, error.param) == (2, "custom_id")


def page_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


async def test_the_example_of_the_page_does_what_it_says(
    gateway: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = page_blocks("python")
    here = block.replace("http://127.0.0.1:7800", gateway.url)
    here = here.replace("smollm2-135m-instruct", MODEL).replace("time.sleep(1)", "pass")
    said: list[str] = []
    names: dict[str, Any] = {"print": lambda *words: said.append(str(words[0]))}
    async with asyncio.timeout(LIMIT_S):
        await asyncio.to_thread(exec, here, names)
    names["client"].close()
    assert said == ["completed", "question-0", "question-1"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_curl_lines_of_the_page_do_the_same(gateway: Stage, tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").write_bytes(lines(2))
    ids: dict[str, str] = {}

    async def curl(command: str) -> Any:
        for name, value in ids.items():
            command = re.sub(rf"(?<![A-Z_]){name}", value, command)
        words = shlex.split(command.replace("http://127.0.0.1:7800", gateway.url))
        ran = await asyncio.create_subprocess_exec(
            *words, "--silent", "--noproxy", "*", cwd=tmp_path, stdout=asyncio.subprocess.PIPE
        )
        return (await ran.communicate())[0]

    shown_lines = "".join(page_blocks("sh")).splitlines()
    store, create, show, fetch = [line for line in shown_lines if line.startswith("curl")]
    async with asyncio.timeout(LIMIT_S):
        ids["FILE_ID"] = json.loads(await curl(store))["id"]
        ids["BATCH_ID"] = json.loads(await curl(create))["id"]
        while (shown := json.loads(await curl(show)))["status"] not in ENDED:
            await pause()
    assert shown["status"] == "completed"
    ids["OUTPUT_FILE_ID"] = shown["output_file_id"]
    assert [json.loads(one)["custom_id"] for one in (await curl(fetch)).splitlines()] == [
        "c0",
        "c1",
    ]
    cancel, delete = re.findall(r"`(curl -X .*?)`", PAGE.read_text())
    assert json.loads(await curl(cancel))["error"]["code"] == "conflict"
    assert json.loads(await curl(delete))["deleted"] is True
