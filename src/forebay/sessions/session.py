"""One session: its prompts run one at a time, and every event of theirs is published.

Whatever happens to a prompt goes through `_end`, exactly once: completion, failure, deadline,
cancellation, removal, the end of the session, shutdown, and recovery after a crash. There the
outcome is written to the ledger, published once that is committed, and the next prompt starts. A
failed prompt delays nobody.

Outcomes are written before they are published: the terminal event gets its number, the number goes
into the ledger with the outcome, and the gate of the event log stays closed until that is
committed. Published first, an outcome could be followed by another one after a crash. A write that
fails is retried until it succeeds; the queue of the session goes on meanwhile.

Everything happens on one loop and nothing here waits, except `accept`, `branch` and `flush`, whose
cancellation changes nothing for anybody else.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.errors import KEY_REVOKED, StoreFailed
from forebay.relay.problem import Problem
from forebay.sessions.conversation import (
    CONTEXT_TOKENS_UNKNOWN,
    CompletedTurn,
    ContextBudget,
    Conversation,
)
from forebay.sessions.errors import (
    SessionRejected,
    history_too_large,
    prompt_not_found,
    session_closing,
)
from forebay.sessions.prompt import Prompt, TurnResult
from forebay.sessions.prompt_queue import Branch, EndedPrompts, PromptQueue
from forebay.sessions.record import chat_body
from forebay.sessions.turn import ActiveTurn

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from forebay.relay.call import InferenceCall
    from forebay.relay.exchange import Exchange
    from forebay.sessions.capacity import CapacityWaiters
    from forebay.sessions.conversation import Message
    from forebay.sessions.deps import SessionDeps
    from forebay.sessions.events import EventLog
    from forebay.sessions.ledger_writer import LedgerWriter
    from forebay.sessions.prompt import Cause, Sender
    from forebay.sessions.record import Recovered, SessionRecord

RESTORED_EVENTS_MAX = 20
"""Terminal events of an earlier process that readers can still be given."""
CLOSED = "the session was closed"
LATE = "the deadline passed before the turn was over"
UNKNOWN = "the gateway was restarted while this prompt ran: its outcome is unknown"


class Session:
    """A conversation with its own FIFO."""

    def __init__(
        self,
        record: SessionRecord,
        log: EventLog,
        writer: LedgerWriter,
        waiters: CapacityWaiters,
        deps: SessionDeps,
    ) -> None:
        self.record = record
        self.id = record.id
        self.log = log
        self.queue = PromptQueue(record.id)
        self.conversation = Conversation(record.system)
        for turn in record.base:
            self.conversation.add(turn)
        self.used_at = record.used_at
        self.closing = False
        self._writer = writer
        self._ledger = writer.ledger
        self._waiters = waiters
        self._deps = deps
        self._ended = EndedPrompts()
        self._failed_writes: set[str] = set()  # prompts whose outcome could not be written yet
        self._seq = 0
        self._turn: ActiveTurn | None = None
        self._starting = False

    # -- queries

    @property
    def active_id(self) -> str | None:
        """The prompt that runs, or is about to."""
        return self._turn.prompt.id if self._turn is not None else None

    @property
    def is_idle(self) -> bool:
        return self.queue.is_empty and not self.log.readers

    def find(self, prompt_id: str) -> Prompt:
        """Return a prompt that is pending or remembered; raises SessionRejected."""
        for prompt in self.queue.prompts():
            if prompt.id == prompt_id:
                return prompt
        ended = self._ended.get(prompt_id)
        if ended is None:
            raise prompt_not_found()
        return ended

    def has_ended(self, prompt_id: str) -> bool:
        return self._ended.get(prompt_id) is not None

    def context_tokens(self) -> int | None:
        """Return what fits into the model's context; None if no node reports it."""
        return self._deps.context_tokens(self.record.model)

    def budget(self) -> ContextBudget:
        context = self.context_tokens() or CONTEXT_TOKENS_UNKNOWN
        return ContextBudget(context, self.record.max_tokens)

    # -- admission

    def admit(
        self,
        messages: tuple[Message, ...],
        sender: Sender,
        limit: int,
        deadline_s: float | None = None,
    ) -> Prompt:
        """Queue a prompt, at once or not at all; raises SessionRejected. `accept` must follow."""
        if self.closing:
            raise session_closing()
        budget = self.budget()
        needed = self.conversation.shortage(messages, budget)
        if needed:
            raise history_too_large(needed, budget.tokens)
        now_s = self._deps.utc_s()
        prompt = Prompt(self._deps.new_id("prm"), self._seq + 1, messages, sender, now_s)
        self.queue.admit(prompt, limit)
        self._seq += 1
        self.used_at = now_s
        if deadline_s is not None:
            prompt.deadline_at = now_s + deadline_s
        return prompt

    async def accept(self, prompt: Prompt) -> int:
        """Write a prompt to the ledger; return the number of the last event before its own.

        Raises StoreFailed, and then the prompt is gone. A caller that is cancelled does not undo
        it: the prompt is accepted all the same.
        """

        def written(error: BaseException | None) -> int:
            before = self.log.last_id
            if error is None:
                self._accepted(prompt)
            else:
                self.queue.withdraw(prompt)
                # It may have been written all the same, and must not run after a restart.
                self._writer.persist(lambda: self._ledger.discard(prompt))
            self._start_next()
            return before

        return await self._writer.write(lambda: self._ledger.accept(self.id, prompt), written)

    def _accepted(self, prompt: Prompt) -> None:
        prompt.move("stored")
        self._arm_deadline(prompt)
        if self.closing:  # the session was closed during the write
            self._end(prompt, "cancelled", TurnResult.failed("session_closed", CLOSED))
            return
        ahead = [one.id for one in self.queue.prompts()].index(prompt.id)
        if ahead:
            self._publish_waiting(prompt, "session", ahead, None)

    def _arm_deadline(self, prompt: Prompt) -> None:
        """Start the timer of its deadline, which counts from its acceptance."""
        if prompt.deadline_at is None:
            return

        def late() -> None:
            self._end(prompt, "failed", TurnResult.failed("deadline_exceeded", LATE))

        clock = self._deps.clock
        left_s = max(0.0, prompt.deadline_at - self._deps.utc_s())
        prompt.deadline_timer = clock.call_at(clock.monotonic_s() + left_s, late)

    def _start_next(self) -> None:
        """Start the head of the queue, unless a turn is active; never re-enters."""
        if self._starting:
            return
        self._starting = True
        try:
            while self._turn is None:
                head = self.queue.drain()
                if isinstance(head, Branch):
                    head.give(self.conversation.copy())
                elif head is None or head.status == "accepting":
                    return
                else:
                    self._turn = ActiveTurn(head, self, self._deps, self._waiters)
                    self._turn.submit()
        finally:
            self._starting = False

    # -- called by the active turn

    def build_call(self, prompt: Prompt) -> tuple[InferenceCall | Problem, Sequence[Message]]:
        """Return the request of a prompt, and the messages that are in it."""
        messages = self.conversation.fit(prompt.messages, self.budget())
        body = chat_body(self.record, messages)
        return self._deps.make_call(self.record, prompt, body), messages

    def turn_waits(self, prompt: Prompt, place: int | None, estimate_s: float | None) -> None:
        self._publish_waiting(prompt, "queue", place, estimate_s)

    def turn_starts(self, prompt: Prompt, exchange: Exchange) -> None:
        if prompt.status != "queued":  # a retry on another node
            return
        prompt.move("started")
        prompt.started_at = self._deps.utc_s()
        prompt.waited_ms = max(0, int((prompt.started_at - prompt.accepted_at) * 1000))
        # Unwritten, a crash would run it again.
        self._writer.persist(
            lambda: self._ledger.start(prompt), is_needed=lambda: not prompt.is_over
        )
        if prompt.added:
            self.log.publish(
                "pending_prompt_started", prompt.id, node=exchange.node, waitedMs=prompt.waited_ms
            )

    def turn_delta(self, prompt: Prompt, text: str, thoughts: str) -> None:
        if thoughts:
            self.log.publish("reasoning_delta", prompt.id, text=thoughts)
        if text:
            self.log.publish("text_delta", prompt.id, text=text)

    def turn_answered(self, turn: ActiveTurn) -> None:
        prompt, answer, exchange = turn.prompt, turn.answer, turn.exchange
        text = answer.text
        if answer.usage is not None:
            self.conversation.learn(turn.sent_bytes, turn.sent_messages, answer.usage.prompt_tokens)
        self.conversation.add(CompletedTurn(prompt.messages, text))
        model, node = (exchange.model, exchange.node) if exchange is not None else ("", "")
        result = TurnResult(text, answer.finish_reason, answer.usage, model, node)
        self._end(prompt, "completed", result)

    def turn_failed(self, prompt: Prompt, problem: Problem) -> None:
        cause: Cause = "cancelled" if problem.code == "cancelled" else "failed"
        self._end(prompt, cause, TurnResult.from_problem(problem))

    # -- ends

    def cancel(self, only: str | None = None) -> str | None:
        """End the active prompt, or only this one; those behind it go on.

        Return its id, None where nothing was ended.
        """
        if self._turn is None or only not in (None, self._turn.prompt.id):
            return None
        prompt = self._turn.prompt
        self._end(prompt, "cancelled", TurnResult.failed("cancelled", "the prompt was cancelled"))
        return prompt.id

    def remove(self, prompt_id: str) -> bool:
        """Remove a queued prompt; False where it has ended. Raises SessionRejected if it runs."""
        prompt = self.find(prompt_id)
        if prompt.is_over:
            return False
        if prompt.status == "running":
            raise SessionRejected(Problem("conflict", "the prompt is running: cancel it instead"))
        if prompt.status == "accepting":
            raise prompt_not_found()  # its id has not been given to anybody
        words = "the prompt was removed from the queue"
        self._end(prompt, "cancelled", TurnResult.failed("removed", words))
        return True

    def end_all(self, code: str, words: str, *, running: bool) -> None:
        """End every accepted prompt; the running one only if `running`."""
        cause: Cause = "cancelled" if code == "session_closed" else "failed"
        for prompt in self.queue.prompts():
            if prompt.status == "queued" or (running and prompt.status == "running"):
                self._end(prompt, cause, TurnResult.failed(code, words))
        for branch in self.queue.branches():
            rejection = "session_closing" if code == "session_closed" else code
            branch.reject(SessionRejected(Problem(rejection, words)))
        self._start_next()

    def end_of(self, revoked: Collection[str]) -> None:
        """End the queued prompts of keys that were revoked."""
        for prompt in self.queue.prompts():
            if prompt.status == "queued" and prompt.sender.key in revoked:
                self._end(prompt, "cancelled", TurnResult.failed("cancelled", KEY_REVOKED))

    def _end(self, prompt: Prompt, cause: Cause, result: TurnResult) -> None:
        """Give a prompt its one outcome: written, then published; and start the next one."""
        if prompt.is_over:
            return
        prompt.move(cause)
        prompt.result = result
        if prompt.deadline_timer is not None:
            prompt.deadline_timer.cancel()
        turn = self._turn
        if turn is not None and turn.prompt is prompt:
            self._turn = None
            turn.stop()
        self.used_at = self._deps.utc_s()
        self._write_end(prompt, self.used_at)
        self._ended.add(prompt)
        self._deps.figures.count(result.error.code if result.error is not None else "completed")
        self.queue.drain()
        # The slot of what ran is free a moment later; only then should the next one ask for one.
        asyncio.get_running_loop().call_soon(self._start_next)

    def _write_end(self, prompt: Prompt, ended_at: float) -> None:
        self.log.hold()
        event_id = self._publish_end(prompt)

        def written(error: BaseException | None) -> None:
            if error is not None:
                self._failed_writes.add(prompt.id)
                return
            self._failed_writes.discard(prompt.id)
            prompt.is_published = True
            self.log.release()

        self._writer.persist(lambda: self._ledger.end(prompt, event_id, ended_at), written)

    async def flush(self) -> None:
        """Wait until the outcomes so far are written; raises StoreFailed where they are not yet."""
        await asyncio.wrap_future(self._ledger.flush())
        if self._failed_writes:
            raise StoreFailed("outcomes of prompts could not be written yet")

    # -- events

    def _publish_waiting(
        self, prompt: Prompt, waits_for: str, place: int | None, estimate_s: float | None
    ) -> None:
        """Announce a prompt that has to wait, once."""
        if prompt.added:
            return
        prompt.added = True
        self.log.publish(
            "pending_prompt_added",
            prompt.id,
            position=place,
            estimatedWaitSeconds=None if estimate_s is None else round(estimate_s, 3),
            waitsFor=waits_for,
            text=prompt.text(),
            queuedAt=prompt.accepted_at,
            originator=prompt.sender.user,
        )

    def _publish_end(self, prompt: Prompt) -> int:
        """Publish how a prompt ended; return the number of its terminal event."""
        kind, fields = prompt.terminal_event()
        event_id = self.log.publish(kind, prompt.id, **fields)
        if prompt.added:
            error = prompt.result.error if prompt.result is not None else None
            state = "removed" if error is not None and error.code == "removed" else "completed"
            self.log.publish("pending_prompt_completed", prompt.id, state=state)
        return event_id

    # -- branching

    async def branch(self) -> Conversation:
        """Wait in the queue like a prompt, and return the conversation as it is then.

        Raises SessionRejected. Cancelling it gives up the place.
        """
        if self.closing:
            raise session_closing()
        branch = Branch(asyncio.get_running_loop().create_future())
        self.queue.admit_branch(branch)
        self._start_next()
        try:
            return await branch.copied
        finally:  # perhaps the caller has left
            self.queue.withdraw(branch)
            self._start_next()

    # -- recovery after a restart

    def recover(self, found: Recovered) -> None:
        """Resume where the last process stopped: each prompt without an outcome gets one."""
        self._restore_ended([prompt for prompt in found.prompts if prompt.is_over], found.events)
        self._seq = max((prompt.seq for prompt in found.prompts), default=0)
        self._starting = True  # nothing starts before all of them are queued
        for prompt in found.prompts:
            if not prompt.is_over:
                self.queue.restore(prompt)
        now_s = self._deps.utc_s()
        for place, prompt in enumerate(self.queue.prompts()):
            prompt.recovered = True
            if prompt.status == "running":
                self._end(prompt, "failed", TurnResult.failed("outcome_unknown", UNKNOWN))
            elif prompt.deadline_at is not None and prompt.deadline_at <= now_s:
                self._end(prompt, "failed", TurnResult.failed("deadline_exceeded", LATE))
            else:
                self._arm_deadline(prompt)
                if place:
                    self._publish_waiting(prompt, "session", place, None)
        self._starting = False
        self._start_next()

    def _restore_ended(self, ended: list[Prompt], events: dict[str, int]) -> None:
        ends = sorted(
            (events[prompt.id], prompt.id, prompt) for prompt in ended if prompt.id in events
        )
        for event_id, _, prompt in ends[-RESTORED_EVENTS_MAX:]:
            kind, fields = prompt.terminal_event()
            self.log.restore(event_id, kind, prompt.id, fields)
        for prompt in ended:
            if prompt.status == "completed" and prompt.result is not None:
                self.conversation.add(CompletedTurn(prompt.messages, prompt.result.text or ""))
            self._ended.add(prompt)
