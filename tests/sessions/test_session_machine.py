"""Whatever is done to a session in whatever order: the promises hold."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from forebay.sessions.errors import PromptQueueFull, SessionRejected
from forebay.sessions.ledger_writer import RETRY_S

from .rig import Stage, settled

if TYPE_CHECKING:
    from forebay.sessions.conversation import Conversation
    from forebay.sessions.prompt import Prompt

TERMINAL = ("turn_complete", "turn_error")
INDEX = st.integers(0, 9)


class SessionMachine(RuleBasedStateMachine):
    """Prompts, removals, cancels, branches, failures, deadlines, readers and a slow ledger."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.accepted: list[Prompt] = []
        self.accepting: list[tuple[Prompt, asyncio.Task[int]]] = []
        self.branches: list[asyncio.Task[Conversation]] = []
        self.closed = False

    def do(self, work: Any) -> Any:
        async def turn() -> Any:
            result = work()
            await settled()
            return result

        return self.loop.run_until_complete(turn())

    @initialize(limit=st.integers(0, 5))
    def begin(self, limit: int) -> None:
        self.limit = limit

        def make() -> Stage:
            stage = Stage(limit)
            stage.ledger.automatic = False
            return stage

        self.stage = self.do(make)

    @rule(deadline=st.sampled_from((None, None, 0.5, 3.0)))
    def prompt(self, deadline: float | None) -> None:
        stage = self.stage
        before = stage.session.queue.pending

        def work() -> None:
            if self.closed or (self.limit and before >= self.limit):
                with pytest.raises(SessionRejected if self.closed else PromptQueueFull):
                    stage.admit("hi", deadline)
                return
            prompt = stage.admit("hi", deadline)
            task = self.loop.create_task(stage.session.accept(prompt))
            self.accepting.append((prompt, task))

        self.do(work)

    @rule(fails=st.sampled_from((False, False, False, True)))
    def ledger_answers(self, fails: bool) -> None:
        """Commit or refuse the next write."""
        ledger = self.stage.ledger
        if ledger.writes:
            self.do(ledger.refuse if fails else ledger.commit)
        still = []
        for prompt, task in self.accepting:
            if not task.done():
                still.append((prompt, task))
            elif task.exception() is None:
                self.accepted.append(prompt)
        self.accepting = still

    @rule(index=INDEX)
    def remove(self, index: int) -> None:
        if self.accepted:
            prompt = self.accepted[index % len(self.accepted)]
            with contextlib.suppress(SessionRejected):
                self.do(lambda: self.stage.session.remove(prompt.id))

    @rule()
    def cancel(self) -> None:
        self.do(self.stage.session.cancel)

    @rule(how=st.sampled_from(("run", "answer", "answer", "fail", "say")))
    def node_answers(self, how: str) -> None:
        requests = self.stage.queue.requests
        if requests:
            request = requests[0]
            work = {"run": request.run, "answer": request.answer, "fail": request.fail}
            self.do(work.get(how, lambda: request.say("so")))

    @rule(has_room=st.booleans(), has_slot=st.booleans())
    def queue_changes(self, has_room: bool, has_slot: bool) -> None:
        queue = self.stage.queue
        queue.has_room, queue.has_slot = has_room, has_slot
        self.do(self.stage.waiters.try_all)

    @rule(seconds=st.sampled_from((0.4, 1.0, 30.0, 61.0)))
    def time_passes(self, seconds: float) -> None:
        self.do(lambda: self.stage.clock.advance(seconds))

    @rule()
    def branch(self) -> None:
        def work() -> None:
            self.branches.append(self.loop.create_task(self.stage.session.branch()))

        if len(self.branches) < 10:
            self.do(work)

    @rule(index=INDEX)
    def branch_leaves(self, index: int) -> None:
        """Let whoever waits for a branch go away."""
        if self.branches:
            self.do(self.branches[index % len(self.branches)].cancel)

    @rule()
    def close(self) -> None:
        if self.closed or len(self.accepted) < 5:
            return
        self.closed = True

        def work() -> None:
            self.stage.session.closing = True
            self.stage.session.end_all("session_closed", "closed", running=True)

        self.do(work)

    @invariant()
    def pending_is_never_above_the_cap(self) -> None:
        if hasattr(self, "stage") and self.limit:
            assert 0 <= self.stage.session.queue.pending <= self.limit

    @invariant()
    def at_most_one_request_at_a_time(self) -> None:
        if hasattr(self, "stage"):
            assert len(self.stage.queue.requests) <= 1

    @invariant()
    def nothing_is_told_before_it_is_written(self) -> None:
        if hasattr(self, "stage"):
            told = [e["promptId"] for e in self.stage.events() if e["type"] in TERMINAL]
            assert set(told) <= set(self.stage.ledger.ends)
            assert len(told) == len(set(told))

    def end_everything(self) -> None:
        """Let every prompt come to its end and every outcome be written."""
        stage = self.stage
        stage.queue.has_room = stage.queue.has_slot = True

        def retry_writes() -> None:
            stage.clock.advance(RETRY_S)

        for _ in range(200):
            for work in (retry_writes, stage.ledger.commit_all, stage.waiters.try_all):
                self.do(work)
            for request in list(stage.queue.requests):
                self.do(request.answer)
            is_over = not stage.queue.requests and stage.session.queue.is_empty
            if is_over and not stage.ledger.writes and not stage.writer._failed:
                return

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        stage = self.stage
        self.end_everything()
        self.ledger_answers(False)
        for task in self.branches:
            assert task.done()
            if not task.cancelled():
                task.exception()
        assert stage.session.queue.pending == 0
        assert stage.session.queue.is_empty
        assert stage.waiters.is_empty
        assert stage.queue.freed is None
        ids = [event["id"] for event in _numbered(stage)]
        assert ids == sorted(set(ids))
        for prompt in self.accepted:
            told = [kind for kind in stage.kinds(prompt) if kind in TERMINAL]
            assert len(told) == 1, (prompt.id, told)
            assert prompt.is_over
        self.loop.close()


def _numbered(stage: Stage) -> list[dict[str, int]]:
    return [{"id": event_id} for event_id, _ in stage.session.log._ring]


SessionMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
TestSessions = SessionMachine.TestCase
