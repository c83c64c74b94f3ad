"""One session: its line moves, its prompts run one at a time, everyone hears of it.

Whatever happens to a prompt goes through `_end`, exactly once: completion, failure, deadline,
cancelling, removal, the session's end, shutdown, and after a crash. There the outcome is written
to the ledger and then told, and the line moves on. A failed prompt holds up nobody.

Everything happens on one loop and nothing here waits, but for `accept` and `branch`, which wait
for others; cancelling those changes nothing for anybody else.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.relay.problem import Problem
from forebay.sessions.body import chat_body
from forebay.sessions.conversation import CONTEXT_TOKENS_UNKNOWN, Conversation, Room
from forebay.sessions.conversation import Turn as Remembered
from forebay.sessions.endings import Endings
from forebay.sessions.line import Branch, Line
from forebay.sessions.outcomes import Outcomes
from forebay.sessions.prompt import Prompt, Result
from forebay.sessions.refusals import (
    Refusal,
    history_too_large,
    prompt_not_found,
    session_closing,
)
from forebay.sessions.telling import failed_by, tell_added, terminal_event, without_answer
from forebay.sessions.turn import ActiveTurn
from forebay.sessions.writing import when_written, when_written_in_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.relay.call import Call
    from forebay.relay.exchange import Exchange
    from forebay.sessions.conversation import Message
    from forebay.sessions.events import EventLog
    from forebay.sessions.ledger import Ledger
    from forebay.sessions.prompt import Cause, Sender
    from forebay.sessions.record import Recovered, SessionRecord
    from forebay.sessions.rooms import Rooms
    from forebay.sessions.surroundings import Surroundings
    from forebay.sessions.writing import Writing

RESTORED_EVENTS_MAX = 20
"""Terminal events of an earlier life that readers can still be given."""


class Session:
    """A conversation with its own FIFO."""

    def __init__(
        self,
        record: SessionRecord,
        log: EventLog,
        ledger: Ledger,
        rooms: Rooms,
        around: Surroundings,
        writing: Writing,
    ) -> None:
        self.record = record
        self.id = record.id
        self.log = log
        self.line = Line(record.id)
        self.conversation = Conversation(record.system)
        for turn in record.base:
            self.conversation.add(turn)
        self.used_at = record.used_at
        self.closing = False
        self._ledger = ledger
        self._rooms = rooms
        self._around = around
        self._writing = writing
        self.endings = Endings(log, ledger, writing)
        self._outcomes = Outcomes()
        self._seq = 0
        self._turn: ActiveTurn | None = None
        self._moving = False

    # -- looking

    @property
    def active_id(self) -> str | None:
        """The prompt that runs, or is about to."""
        return self._turn.prompt.id if self._turn is not None else None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is going on and nobody listens."""
        return self.line.is_empty and not self.log.readers

    def find(self, prompt_id: str) -> Prompt:
        """Return a prompt that is pending or remembered; raises Refusal."""
        for prompt in self.line.prompts():
            if prompt.id == prompt_id:
                return prompt
        ended = self._outcomes.get(prompt_id)
        if ended is None:
            raise prompt_not_found()
        return ended

    def has(self, prompt_id: str) -> bool:
        """Say whether a prompt has just ended here."""
        return self._outcomes.get(prompt_id) is not None

    def context_tokens(self) -> int | None:
        """Return what fits into the model's context; None where no node says."""
        return self._around.context_tokens(self.record.model)

    def room(self) -> Room:
        """Return how much of the conversation the model can be sent."""
        return Room(self.context_tokens() or CONTEXT_TOKENS_UNKNOWN, self.record.max_tokens)

    # -- admission

    def admit(
        self,
        messages: tuple[Message, ...],
        sender: Sender,
        limit: int,
        deadline_s: float | None = None,
    ) -> Prompt:
        """Take a prompt in, at once or not at all; raises Refusal. `accept` must follow."""
        if self.closing:
            raise session_closing()
        room = self.room()
        needed = self.conversation.shortage(messages, room)
        if needed:
            raise history_too_large(needed, room.tokens)
        now_s = self._around.utc_s()
        prompt = Prompt(self._around.new_id("prm"), self._seq + 1, messages, sender, now_s)
        self.line.admit(prompt, limit)
        self._seq += 1
        self.used_at = now_s
        if deadline_s is not None:
            prompt.deadline_at = now_s + deadline_s
        return prompt

    async def accept(self, prompt: Prompt) -> int:
        """Write a prompt to the ledger; return the number of the last event before its own.

        Raises StoreFailed, and then the prompt is gone. Cancelling it changes nothing: the prompt
        is accepted, only nobody hears of it here.
        """
        promised: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def stored(error: BaseException | None) -> None:
            before = self.log.last_id
            if error is not None:
                self.line.withdraw(prompt)
                self._discard(prompt)
                if not promised.done():
                    promised.set_exception(error)
            else:
                self._stored(prompt)
                if not promised.done():
                    promised.set_result(before)
            self._move_on()

        try:
            future = self._ledger.accept(self.id, prompt)
        except BaseException:
            self.line.withdraw(prompt)
            raise
        when_written_in_time(future, stored)
        return await promised

    def _discard(self, prompt: Prompt) -> None:
        """Take back what was refused: it may have been written all the same, and must not run."""

        def written(error: BaseException | None) -> None:
            if error is not None:
                self._writing.later(lambda: self._discard(prompt))

        when_written(self._ledger.discard(prompt), written)

    def _stored(self, prompt: Prompt) -> None:
        prompt.move("stored")
        self._arm(prompt)
        if self.closing:  # the session ended while this was being written
            self._end(prompt, "cancelled", without_answer("session_closed", CLOSED))
            return
        ahead = [one.id for one in self.line.prompts()].index(prompt.id)
        if ahead:
            tell_added(self.log, prompt, "session", ahead, None)

    def _arm(self, prompt: Prompt) -> None:
        """Start the clock of its deadline, which runs from its acceptance."""
        if prompt.deadline_at is None:
            return

        def late() -> None:
            self._end(prompt, "failed", without_answer("deadline_exceeded", LATE))

        clock = self._around.clock
        left_s = max(0.0, prompt.deadline_at - self._around.utc_s())
        prompt.deadline_timer = clock.call_at(clock.monotonic_s() + left_s, late)

    # -- the line moves

    def _move_on(self) -> None:
        """Have the head of the line run, unless it does; never re-enters."""
        if self._moving:
            return
        self._moving = True
        try:
            while self._turn is None:
                head = self.line.drain()
                if isinstance(head, Branch):
                    head.give(self.conversation.copy())
                elif head is None or head.status == "accepting":
                    return
                else:
                    self._turn = ActiveTurn(head, self, self._around, self._rooms)
                    self._turn.submit()
        finally:
            self._moving = False

    # -- from the turn

    def build_call(self, prompt: Prompt) -> tuple[Call | Problem, Sequence[Message]]:
        """Return the request of a prompt, and the messages that are in it."""
        messages = self.conversation.fit(prompt.messages, self.room())
        body = chat_body(self.record, messages)
        return self._around.make_call(self.record, prompt, body), messages

    def turn_waits(self, prompt: Prompt, place: int | None, estimate_s: float | None) -> None:
        tell_added(self.log, prompt, "queue", place, estimate_s)

    def turn_starts(self, prompt: Prompt, exchange: Exchange) -> None:
        if prompt.status != "queued":  # it was tried elsewhere before
            return
        prompt.move("started")
        prompt.started_at = self._around.utc_s()
        prompt.waited_ms = max(0, int((prompt.started_at - prompt.accepted_at) * 1000))
        self._write_start(prompt)
        if prompt.added:
            self.log.publish(
                "pending_prompt_started", prompt.id, node=exchange.node, waitedMs=prompt.waited_ms
            )

    def _write_start(self, prompt: Prompt) -> None:
        def written(error: BaseException | None) -> None:
            if error is not None and not prompt.is_over:  # unwritten, a crash would run it again
                self._writing.later(lambda: self._write_start(prompt))

        when_written(self._ledger.start(prompt), written)

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
        self.conversation.add(Remembered(prompt.messages, text))
        model, node = (exchange.model, exchange.node) if exchange is not None else ("", "")
        result = Result(text, answer.finish_reason, answer.usage, model, node)
        self._end(prompt, "completed", result)

    def turn_failed(self, prompt: Prompt, problem: Problem) -> None:
        cause: Cause = "cancelled" if problem.code == "cancelled" else "failed"
        self._end(prompt, cause, failed_by(problem))

    # -- ends

    def cancel(self, only: str | None = None) -> str | None:
        """End the prompt that runs, or only this one; those behind it go on.

        Return its id, None where nothing was ended.
        """
        if self._turn is None or only not in (None, self._turn.prompt.id):
            return None
        prompt = self._turn.prompt
        self._end(prompt, "cancelled", without_answer("cancelled", "the prompt was cancelled"))
        return prompt.id

    def remove(self, prompt_id: str) -> bool:
        """Take a queued prompt out; False where it is over. Raises Refusal where it runs."""
        prompt = self.find(prompt_id)
        if prompt.is_over:
            return False
        if prompt.status == "running":
            raise Refusal(Problem("conflict", "the prompt is running: cancel it instead"))
        if prompt.status == "accepting":
            raise prompt_not_found()  # nobody has been told of it
        words = "the prompt was removed from the line"
        self._end(prompt, "cancelled", without_answer("removed", words))
        return True

    def end_all(self, code: str, words: str, *, running: bool) -> None:
        """End every prompt that is accepted; perhaps not the one that runs, which may finish."""
        cause: Cause = "cancelled" if code == "session_closed" else "failed"
        for prompt in self.line.prompts():
            if prompt.status == "queued" or (running and prompt.status == "running"):
                self._end(prompt, cause, without_answer(code, words))
        for branch in self.line.branches():
            refusal = "session_closing" if code == "session_closed" else code
            branch.refuse(Refusal(Problem(refusal, words)))
        self._move_on()

    def _end(self, prompt: Prompt, cause: Cause, result: Result) -> None:
        """Give a prompt its one outcome: written first, then told; and let the line move on."""
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
        self.used_at = self._around.utc_s()
        self.endings.tell(prompt, self.used_at)
        self._outcomes.add(prompt)
        self._writing.ended(result.error.code if result.error is not None else "completed")
        self.line.drain()
        # The slot of what ran is free a moment later; only then should the next one ask for one.
        asyncio.get_running_loop().call_soon(self._move_on)

    # -- branching

    async def branch(self) -> Conversation:
        """Wait for a turn in the line, and return the conversation as it is then.

        Raises Refusal. Cancelling it gives up the turn.
        """
        if self.closing:
            raise session_closing()
        branch = Branch(asyncio.get_running_loop().create_future())
        self.line.admit_branch(branch)
        self._move_on()
        try:
            return await branch.copied
        finally:  # perhaps nobody waits for it any more
            self.line.withdraw(branch)
            self._move_on()

    # -- after a restart

    def recover(self, found: Recovered) -> None:
        """Go on where the last process left off: each prompt without an outcome gets one."""
        self._remember([prompt for prompt in found.prompts if prompt.is_over], found.events)
        self._seq = max((prompt.seq for prompt in found.prompts), default=0)
        self._moving = True  # not before all of them are in line
        for prompt in found.prompts:
            if not prompt.is_over:
                self.line.restore(prompt)
        now_s = self._around.utc_s()
        for place, prompt in enumerate(self.line.prompts()):
            prompt.recovered = True
            if prompt.status == "running":
                self._end(prompt, "failed", without_answer("outcome_unknown", UNKNOWN))
            elif prompt.deadline_at is not None and prompt.deadline_at <= now_s:
                self._end(prompt, "failed", without_answer("deadline_exceeded", LATE))
            else:
                self._arm(prompt)
                if place:
                    tell_added(self.log, prompt, "session", place, None)
        self._moving = False
        self._move_on()

    def _remember(self, ended: list[Prompt], events: dict[str, int]) -> None:
        told = sorted(
            (events[prompt.id], prompt.id, prompt) for prompt in ended if prompt.id in events
        )
        for event_id, _, prompt in told[-RESTORED_EVENTS_MAX:]:
            kind, fields = terminal_event(prompt)
            self.log.restore(event_id, kind, prompt.id, fields)
        for prompt in ended:
            if prompt.status == "completed" and prompt.result is not None:
                self.conversation.add(Remembered(prompt.messages, prompt.result.text or ""))
            self._outcomes.add(prompt)


CLOSED = "the session was closed"
LATE = "the deadline passed before the turn was over"
UNKNOWN = "the gateway was restarted while this prompt ran: what became of it is unknown"
