"""A run over real sockets, in time that the test moves, against a server that does as told."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from forebay.load.answers import MeasuredAnswer
from forebay.load.connections import IDLE_S_MAX, LoadPool
from forebay.load.plan import parse_mix
from forebay.load.run import LoadRun, Measured
from forebay.load.samples import NOT_SENT, TIMEOUT, UNFINISHED, RequestSample
from forebay.testing import FakeClock, FakeNode
from forebay.testing.fake_node import within

from .making import codes, plan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from forebay.testing import Call

OK = {
    "choices": [{"message": {"content": "x"}}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4},
}
BUSY = {"error": {"code": "queue_full", "message": "full"}}


class JumpClock(FakeClock):
    """A clock of a machine that may stand still for a while."""

    def jump(self, seconds: float) -> None:
        self._now_s += seconds
        self.advance(0)


class Bench:
    """A server, a run against it, and the time."""

    def __init__(self, node: FakeNode, **settings: Any) -> None:
        self.node = node
        self.clock = JumpClock(1000.0)
        given = {"arrivals": "constant", "rate": 1.0, "stream": False, "timeout_s": 30.0}
        self.plan = plan(url=node.url, **{**given, **settings})
        pool = LoadPool(node.url, settings.pop("key", None), self.clock)
        self.run = LoadRun(self.plan, self.plan.schedule(), pool, self.clock)
        self.running = asyncio.create_task(self.run.run())

    async def result(self) -> Measured:
        found: Measured = await within(self.running, 10.0, "the run does not end")
        return found

    async def answer_all(self, count: int) -> None:
        for _ in range(count):
            await (await self.node.next_call()).answer(OK)

    async def until_ended(self, count: int) -> None:
        """Let the loop turn until that many are over."""

        async def ended() -> None:
            live = self.run.live
            while live.ok + live.failed + live.not_sent < count:  # noqa: ASYNC110 - of the loop
                await asyncio.sleep(0)

        await within(ended(), 10.0, "they do not end")


@asynccontextmanager
async def bench(**settings: Any) -> AsyncIterator[Bench]:
    async with FakeNode() as node:
        made = Bench(node, **settings)
        await asyncio.sleep(0)  # it starts
        try:
            yield made
        finally:
            made.run.stop()
            await asyncio.gather(made.running, return_exceptions=True)


async def test_requests_go_out_when_due_whether_or_not_others_were_answered() -> None:
    async with bench(duration_s=4.0) as it:
        await it.node.next_call()
        it.clock.advance(3.0)
        waiting = [await it.node.next_call() for _ in range(3)]
        assert it.node.running == 4
        assert it.run.live.in_flight == 4
        for call in [it.node.calls[0], *waiting]:
            await call.answer(OK)
        found = await it.result()
    assert [sample.total_s for sample in found.samples] == [3.0, 2.0, 1.0, 0.0]
    assert (found.span_s, found.elapsed_s) == (4.0, 4.0)


async def test_a_machine_that_stood_still_counts_its_lateness_and_says_so() -> None:
    async with bench(duration_s=3.0) as it:
        await it.answer_all(1)
        await it.until_ended(1)
        it.clock.jump(2.5)
        await it.answer_all(2)
        found = await it.result()
    assert [sample.late_s for sample in found.samples] == [0.0, 1.5, 0.5]
    assert [sample.total_s for sample in found.samples] == [0.0, 1.5, 0.5]


async def test_what_would_be_too_many_at_once_is_not_sent_and_counted() -> None:
    async with bench(duration_s=5.0, max_in_flight=2) as it:
        it.clock.advance(5.0)
        await it.answer_all(2)
        found = await it.result()
        assert len(it.node.calls) == 2
    assert codes(found) == ["", "", NOT_SENT, NOT_SENT, NOT_SENT]


async def test_what_is_under_way_when_it_is_stopped_is_hung_up_on_and_not_counted() -> None:
    async with bench(duration_s=9.0) as it:
        await it.answer_all(1)
        await it.until_ended(1)
        it.clock.advance(1.0)
        call = await it.node.next_call()
        it.run.stop()
        found = await it.result()
        await call.gone()
    assert codes(found) == ["", UNFINISHED]
    assert found.is_interrupted
    assert found.span_s == 1.0


async def test_connections_are_used_again_but_not_when_they_are_stale() -> None:
    async with bench(duration_s=6.0, rate=0.2, warmup_s=6.0) as it:  # due at 0, 5 and 10
        await it.answer_all(1)
        await it.until_ended(1)
        it.clock.advance(5.0)
        assert IDLE_S_MAX < 5.0
        await it.answer_all(1)
        await it.until_ended(2)
        assert it.node.accepted == 2
        it.clock.advance(5.0)
        await it.answer_all(1)
        await it.result()
    async with bench(duration_s=3.0) as it:
        for number in range(3):
            await it.answer_all(1)
            await it.until_ended(number + 1)
            it.clock.advance(1.0)
        await it.result()
        assert it.node.accepted == 1


async def test_a_server_that_closes_after_each_answer_is_asked_anew() -> None:
    async with bench(duration_s=2.0) as it:
        await (await it.node.next_call()).answer(OK, headers={"connection": "close"})
        await it.until_ended(1)
        it.clock.advance(1.0)
        await it.answer_all(1)
        assert codes(await it.result()) == ["", ""]
        assert it.node.accepted == 2


async def test_an_answer_that_lasts_until_the_connection_ends_is_whole() -> None:
    async with bench(duration_s=1.0) as it:
        call = await it.node.next_call()
        await call.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        await call.write(b'{"choices": [{"text": "x"}]}')
        call.close()
        assert codes(await it.result()) == [""]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "bad_answer"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}", "connection_lost"),
        (b"", "connection_lost"),
    ],
)
async def test_what_is_no_whole_answer_is_an_error(sent: bytes, code: str) -> None:
    async with bench(duration_s=1.0) as it:
        call = await it.node.next_call()
        if sent:
            await call.write(sent)
        call.close()
        assert codes(await it.result()) == [code]


@pytest.mark.parametrize("method", ["head", "body", "end"])
async def test_an_answer_that_cannot_be_understood_does_not_end_the_run(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_first = True
    real = getattr(MeasuredAnswer, method)

    def fail_once(self: MeasuredAnswer, *given: Any) -> None:
        nonlocal is_first
        was_first, is_first = is_first, False
        if was_first:
            raise OverflowError("int too large to convert to float")
        real(self, *given)

    monkeypatch.setattr(MeasuredAnswer, method, fail_once)
    async with bench(duration_s=2.0) as it:
        await it.answer_all(1)
        await it.until_ended(1)
        it.clock.advance(1.0)
        await it.answer_all(1)
        assert codes(await it.result()) == ["bad_answer", ""]


async def test_a_notice_before_the_answer_is_passed_over() -> None:
    async with bench(duration_s=1.0) as it:
        call = await it.node.next_call()
        await call.write(b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n")
        await call.answer(OK)
        assert codes(await it.result()) == [""]


async def test_refusals_are_outcomes_unless_retries_are_asked_for() -> None:
    async with bench(duration_s=1.0) as it:
        await (await it.node.next_call()).answer(BUSY, 429, {"retry-after": "0"})
        assert codes(await it.result()) == ["queue_full"]
    async with bench(duration_s=1.0, retries=1) as it:
        await (await it.node.next_call()).answer(BUSY, 429, {"retry-after": "0"})
        call = await it.node.next_call()
        it.clock.advance(3.0)
        await call.answer(OK)
        (sample,) = (await it.result()).samples
        assert (sample.code, sample.retries, sample.total_s) == ("", 1, 3.0)
    async with bench(duration_s=1.0, retries=1) as it:
        for _ in range(2):
            await (await it.node.next_call()).answer(BUSY, 503, {"retry-after": "0"})
        assert codes(await it.result()) == ["queue_full"]


async def test_what_would_fail_again_is_not_tried_again() -> None:
    async with bench(duration_s=1.0, retries=3) as it:
        await (await it.node.next_call()).answer({"error": {"code": "invalid_request"}}, 400)
        assert codes(await it.result()) == ["invalid_request"]
        assert len(it.node.calls) == 1


async def test_an_answer_that_does_not_come_is_given_up() -> None:
    async with bench(duration_s=1.0, timeout_s=0.01) as it:
        call = await it.node.next_call()
        await call.gone()
        assert codes(await it.result()) == ["timeout"]


async def test_a_request_without_an_answer_does_not_prolong_the_run() -> None:
    async with bench(duration_s=2.0) as it:
        await it.answer_all(1)
        await it.until_ended(1)
        it.clock.advance(1.0)
        lost = await it.node.next_call()
        it.clock.advance(90.0)
        lost.reset()
        found = await it.result()
    assert codes(found) == ["", "connection_lost"]
    assert found.samples[1].total_s == 90.0
    assert found.elapsed_s == 2.0  # goodput is of the time to the last answer
    assert not RequestSample(0.0, "u", "p", TIMEOUT).is_answered
    assert RequestSample(0.0, "u", "p", "queue_full").is_answered


async def test_a_stream_is_timed_from_when_it_was_due_to_its_first_piece() -> None:
    async with bench(duration_s=1.0, stream=True) as it:
        call = await it.node.next_call()
        it.clock.advance(2.0)
        await call.start_stream({"x-queue-wait-ms": "1500", "x-queue-status": "queued"})
        await call.chunk(b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n')
        await call.chunk(b"data: [DONE]\n\n")
        await call.end()
        (sample,) = (await it.result()).samples
    assert (sample.code, sample.ttft_s, sample.wait_s, sample.tokens_out) == ("", 2.0, 1.5, 1)


async def test_what_is_asked_is_what_was_planned() -> None:
    mix = parse_mix("alice", "--users", "u")
    high = parse_mix("high", "--priorities", "p")
    more: dict[str, Any] = {"users": mix, "priorities": high, "max_tokens": 7, "ignore_eos": True}
    async with bench(duration_s=1.0, stream=True, prompt_tokens=20, **more) as it:
        call = await it.node.next_call()
        body = call.json
        assert (call.path, call.headers["x-forebay-user"]) == ("/v1/chat/completions", "alice")
        assert call.headers["x-forebay-priority"] == "high"
        assert len(body.pop("messages")[0]["content"].split()) == 13
        assert body == {
            "model": "m",
            "max_tokens": 7,
            "stream": True,
            "user": "alice",
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
        }
    async with bench(duration_s=1.0) as it:
        call = await it.node.next_call()
        assert "x-forebay-priority" not in call.headers
        assert not {"stream_options", "ignore_eos"} & set(call.json)


async def test_the_same_seed_sends_the_same() -> None:
    sent = []
    for seed in (1, 1, 2):
        async with bench(duration_s=3.0, seed=seed, users=parse_mix("9", "-", "u")) as it:
            it.clock.advance(3.0)
            calls: list[Call] = [await it.node.next_call() for _ in range(3)]
            sent.append(sorted(call.body for call in calls))
    assert sent[0] == sent[1] != sent[2]
