"""The Python examples of the pages that no other test runs; sdk.md and agents.md have their own."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from forebay.batching import CancelToken, Priority, QueueClosed

if TYPE_CHECKING:
    from .reader import Reader

DOCS = Path(__file__).parent.parent.parent / "docs"
LIMIT_S = 60.0  # only turns a hang into a failure


def blocks_of(page: str) -> list[str]:
    text = (DOCS / page).read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


async def test_the_openai_sdk_runs_a_batch_as_the_page_says(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = blocks_of("batches.md")
    monkeypatch.setattr(time, "sleep", lambda _: None)
    said: list[tuple[Any, ...]] = []
    names: dict[str, Any] = {"print": lambda *words: said.append(words)}
    async with asyncio.timeout(LIMIT_S):
        await asyncio.to_thread(exec, reader.filled(block), names)
    names["client"].close()
    assert said[0][0] == "completed"
    assert [words[0] for words in said[1:]] == ["question-0", "question-1"]


def test_a_loop_is_filled_by_the_queue_as_the_page_says() -> None:
    making, asking, loop = blocks_of("batching.md")

    class Tokenizer:
        encode = staticmethod(str.split)

    steps: list[list[str]] = []
    names: dict[str, Any] = {"tokenizer": Tokenizer, "running": [], "slots": 4}

    def step(running: list[Any]) -> None:
        steps.append([request.id for request in running])
        running.clear()
        names["queue"].close()

    names |= {"step": step, "free_bytes": lambda _: 2**40}
    exec(making, names)
    exec(asking, names)  # the request that it makes is cancelled again
    assert len(names["queue"]) == 0
    for number in range(6):
        names["queue"].enqueue(names["Request"](f"r{number}", "a b c", max_tokens=5))
    with pytest.raises(QueueClosed):
        exec(loop, names)
    assert steps[0] == ["r0", "r1", "r2", "r3"]


def test_the_runner_of_the_tutorial_does_all_that_was_approved(tmp_path: Path) -> None:
    _, block = blocks_of("tutorials/background-work.md")
    done: list[str] = []
    all_done = threading.Event()

    def note(what: str) -> str:
        done.append(what)
        if len(done) == 6:
            all_done.set()
        return what

    async def research(company: str) -> str:
        return note(company)

    class Posting:
        def __init__(self, number: int) -> None:
            self.id = number

    names: dict[str, Any] = {
        "load_posting": lambda number: f"posting {number}",
        "load_company": lambda number: f"company {number}",
        "llm": lambda posting, style: note(f"{posting}, {style}"),
        "allm": research,
        "fetch_mail": lambda: "",
    }
    exec(block.replace("sqlite:///app.db", f"sqlite:///{tmp_path}/app.db"), names)
    try:
        names["approve"]([Posting(number) for number in (1, 2, 3)])
        assert all_done.wait(LIMIT_S)
    finally:
        names["runner"].shutdown()
    letters = {f"posting {number}, plain" for number in (1, 2, 3)}
    assert set(done) == letters | {f"company {number}" for number in (1, 2, 3)}


def test_the_loop_of_the_tutorial_serves_by_class_and_lets_go_of_what_was_cancelled() -> None:
    loop, asking, _ = blocks_of("tutorials/your-own-engine.md")
    names: dict[str, Any] = {}
    exec(loop, names)
    exec(asking, names)
    queue, request, gone = names["queue"], names["Request"], CancelToken()
    for number in range(5):
        queue.enqueue(request(f"low {number}", [1], max_tokens=200, user="bob"), Priority.LOW)
    queue.enqueue(request("gone", [1], max_tokens=200, cancel=gone))
    steps: list[list[str]] = []
    finished: list[str] = []

    def step(running: list[Any]) -> list[Any]:
        steps.append([one.id for one in running])
        gone.cancel()
        return running[:1]

    def finish(done: Any) -> None:
        finished.append(done.id)
        if len(finished) == 6:
            queue.close()

    names["serve"](step, finish)
    assert steps[0] == ["r1", "gone", "low 0", "low 1"]
    assert finished == ["r1", "low 0", "low 1", "low 2", "low 3", "low 4"]
    assert all("gone" not in ids for ids in steps[1:])
