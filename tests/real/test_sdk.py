"""The SDK and `forebay chat` through the gateway to a real llama.cpp."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from forebay.cli.main import app
from forebay.sdk import AsyncClient, AsyncSessionClient, Client, Queued, SessionClient

from .conftest import ENDLESS, FORCED, MODEL, SLOTS, Engine

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Stage

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


@pytest.fixture
async def talk(stage: Stage, llama_url: str, tmp_path: Path) -> Stage:
    await stage.start(llama_url, jobs={"database": f"sqlite:///{tmp_path}/jobs.db"})
    return stage


async def test_plain_programs_chat_talk_and_leave_work(talk: Stage) -> None:
    def work() -> None:
        forced: dict[str, Any] = {"max_tokens": 6, **FORCED}
        with Client(talk.url) as client:
            answer = client.chat(MODEL, "Is the queue waiting?", **forced)
            assert answer.usage is not None
            assert (answer.usage.completion_tokens, answer.node) == (6, "n1")
            again = "".join(
                getattr(piece, "text", "")
                for piece in client.stream(MODEL, "Is the queue waiting?", **forced)
            )
            assert again == answer.text
            options = {"temperature": 0}
            with SessionClient.create_or_attach(
                client, model=MODEL, max_tokens=6, options=options
            ) as session:
                first = session.prompt("hello")
                assert first.usage is not None
                assert 0 < first.usage.completion_tokens <= 6
                told: list[str] = []
                second = session.prompt(
                    "again", on_event=lambda event: told.append(event.data.get("text") or "")
                )
                assert "".join(told[:-1]) == second.text == told[-1]
                assert second.usage is not None
                assert second.usage.prompt_tokens > first.usage.prompt_tokens
                assert len(session.messages()) == 4
            assert client.wait_job(client.submit("chat", BODY).id).status == "completed"
            assert [result.error for result in client.batch([BODY] * 3)] == [None] * 3

    await asyncio.to_thread(work)


async def test_who_waits_for_a_real_engine_is_told_the_place(stage: Stage, engine: Engine) -> None:
    endless: dict[str, Any] = {**FORCED, "max_tokens": ENDLESS["max_tokens"]}
    async with AsyncClient(stage.url) as client:
        busy = [asyncio.ensure_future(client.chat(MODEL, "go on", **endless)) for _ in range(SLOTS)]
        await engine.until_busy(SLOTS)
        told: asyncio.Queue[Queued] = asyncio.Queue()
        waiting = asyncio.ensure_future(
            client.chat(MODEL, "hello", on_queue=told.put_nowait, max_tokens=2)
        )
        assert (await told.get()).position == 1
        for one in busy:
            one.cancel()
        await asyncio.gather(*busy, return_exceptions=True)
        answer = await waiting
        assert (answer.position, answer.node) == (1, "n1")
        assert answer.waited_ms


async def test_cancelling_a_turn_frees_the_real_slot(talk: Stage, llama_url: str) -> None:
    engine = Engine(llama_url)
    never_ends = {"logit_bias": {"2": -100, "4": -100}}  # the two tokens that end an answer
    async with AsyncClient(talk.url) as client:
        session = await AsyncSessionClient.create_or_attach(
            client, model=MODEL, max_tokens=4000, options=never_ends
        )
        sent = await session.send("go on")
        await engine.until_busy(1)
        await session.withdraw(sent.prompt_id)
        await engine.until_busy(0)
        await session.close(delete=True)


async def test_the_chat_command_talks_from_a_pipe(talk: Stage) -> None:
    def run(*words: str, typed: str) -> Any:
        return CliRunner().invoke(app, ["chat", "--url", talk.url, *words], input=typed)

    first = await asyncio.to_thread(run, "--system", "Be brief.", typed="hello\nand again\n")
    assert first.exit_code == 0, first.stderr
    assert len(first.stdout.strip()) > 0
    assert f"Talking with {MODEL} in session" in first.stderr
    known = first.stderr.partition("--session ")[2].split()[0]
    second = await asyncio.to_thread(run, "--session", known, typed="more\n")
    assert second.exit_code == 0, second.stderr
    async with AsyncClient(talk.url) as client:
        session = await AsyncSessionClient.load(client, known)
        roles = [message["role"] for message in session.history]
        assert roles == ["user", "assistant"] * 3
