"""All sessions of one gateway: created, found, branched, closed; limited in number and age."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from forebay.relay.problem import Problem
from forebay.sessions.capacity import CapacityWaiters
from forebay.sessions.conversation import CONTEXT_TOKENS_UNKNOWN, ContextBudget, Conversation
from forebay.sessions.errors import (
    SessionRejected,
    history_too_large,
    session_closing,
    session_not_found,
    shutting_down,
)
from forebay.sessions.events import EventLog
from forebay.sessions.ledger_writer import LedgerWriter, on_written
from forebay.sessions.record import SessionRecord
from forebay.sessions.session import CLOSED, Session
from forebay.shares import RETRY_AFTER_S, SESSIONS, Places

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from forebay.clock import TimerHandle
    from forebay.sessions.deps import SessionDeps
    from forebay.sessions.ledger import SessionLedger
    from forebay.settings import SessionsSettings

logger = logging.getLogger("forebay.sessions")

SWEEP_S_MAX = 60.0
"""How often idle sessions are looked for."""


class NewSession(Struct, frozen=True):
    """What a session is created with."""

    owner: str
    model: str
    system: str | None = None
    max_tokens: int = 0
    options: dict[str, Any] = {}


class Sessions:
    """The sessions by their ids."""

    def __init__(
        self,
        settings: SessionsSettings,
        ledger: SessionLedger,
        deps: SessionDeps,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._deps = deps
        self.waiters = CapacityWaiters(deps.relay, deps.clock)
        self._writer = LedgerWriter(ledger, deps.clock)
        self._epoch = deps.new_id("epoch")
        self._sessions: dict[str, Session] = {}
        self._places = Places(SESSIONS, settings.max_sessions)
        """Those of sessions that are being written, too."""
        self._sweep_timer: TimerHandle | None = None
        self._draining = False
        deps.figures.held = lambda: len(self._sessions)
        deps.figures.pending = lambda: sum(session.queue.pending for session in self)

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._sessions.values()))

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._sessions

    # -- lifecycle

    async def start(self) -> None:
        """Recover what the last process left; raises StoreFailed."""
        records = await asyncio.wrap_future(self._ledger.recover())
        # Load all before resuming any: should the store fail in between, nothing runs.
        loads = [await asyncio.wrap_future(self._ledger.load(record)) for record in records]
        for found in loads:
            self._places.take(found.record.owner)
            self._add(found.record).recover(found)
            await asyncio.sleep(0)  # let the loop run between two
        if records:
            logger.info("recovered %d session%s", len(records), "" if len(records) == 1 else "s")
        self._sweep_later()

    def revoke(self, gone: Collection[str], revoked: Collection[str]) -> None:
        """End the readers of sessions whose keys are gone, and queued prompts of revoked ones."""
        for session in self:
            session.end_of(revoked)
            if session.record.owner in gone:
                session.log.drop_readers("unauthorized")

    def drain(self) -> None:
        """Accept nothing more: queued prompts end at once, running ones may finish."""
        self._draining = True
        for session in self:
            session.end_all("shutting_down", "the gateway is shutting down", running=False)

    async def finish(self) -> None:
        """End what remains, write the outcomes if possible, and end every reader."""
        self.waiters.stop()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for session in self:
            session.end_all("shutting_down", "the gateway is shutting down", running=True)
        await self._writer.finish()
        for session in self:
            session.log.close("stream_closed", reason="shutting_down")

    # -- single sessions

    def find(self, session_id: str, owner: str | None) -> Session:
        """Return a session of this owner's, of anybody's for None; raises SessionRejected."""
        session = self._sessions.get(session_id)
        if session is None or (owner is not None and session.record.owner != owner):
            raise session_not_found()
        return session

    async def flush(self, prompt_id: str) -> None:
        """Wait until the outcome of a prompt is written; raises StoreFailed where it is not yet."""
        for session in self:
            if session.has_ended(prompt_id):
                await session.flush()

    async def create(self, new: NewSession) -> Session:
        """Create a session; raises SessionRejected or StoreFailed."""
        context = self._deps.context_tokens(new.model) or CONTEXT_TOKENS_UNKNOWN
        budget = ContextBudget(context, new.max_tokens)
        needed = Conversation(new.system).shortage((), budget)
        if needed:
            raise history_too_large(needed, budget.tokens, "system")
        self._reserve(new.owner)
        return await self._create(new, ())

    async def branch(self, session: Session) -> Session:
        """Create a session that continues another, when its turn in that one's queue comes.

        Raises SessionRejected or StoreFailed. Cancelling it gives up the place.
        """
        record = session.record
        self._reserve(record.owner)
        try:
            conversation = await session.branch()
        except BaseException:
            self._places.give_back(record.owner)
            raise
        new = NewSession(
            record.owner, record.model, record.system, record.max_tokens, record.options
        )
        return await self._create(new, tuple(conversation.turns))

    async def close(self, session: Session, reason: str) -> None:
        """Close a session and end everything in it; raises SessionRejected where it is closing.

        Raises StoreFailed, and then the session is still there. Cancelling it changes nothing.
        """
        if session.closing:
            raise session_closing()
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            if not closed.done():
                closed.set_result(None) if error is None else closed.set_exception(error)

        self._close(session, reason, done)
        await closed

    # -- inside

    def _reserve(self, owner: str) -> None:
        """Count a session that is about to be created, so that no two take the last place."""
        if self._draining:
            raise shutting_down()
        if words := self._places.refusal(owner, self._deps.owners()):
            raise SessionRejected(Problem(SESSIONS.code, words, retry_after_s=RETRY_AFTER_S))
        self._places.take(owner)

    async def _create(self, new: NewSession, base: tuple[Any, ...]) -> Session:
        """Write a session to the ledger, then add it; `_reserve` was called before."""
        now_s = self._deps.utc_s()
        record = SessionRecord(
            self._deps.new_id("ses"), new.owner, new.model, new.system, new.max_tokens,
            new.options, base, now_s, now_s,
        )  # fmt: skip

        def written(error: BaseException | None) -> Session | None:
            if error is None:
                return self._add(record)
            self._places.give_back(new.owner)
            return None

        session = await self._writer.write(lambda: self._ledger.create(record), written)
        assert session is not None
        return session

    def _add(self, record: SessionRecord) -> Session:
        log = EventLog(self._epoch, record.life, self._deps.clock)
        session = Session(record, log, self._writer, self.waiters, self._deps)
        self._sessions[record.id] = session
        return session

    def _sweep_later(self) -> None:
        clock = self._deps.clock
        after_s = min(SWEEP_S_MAX, self._settings.idle_seconds)
        self._sweep_timer = clock.call_at(clock.monotonic_s() + after_s, self._sweep)

    def _sweep(self) -> None:
        """Close sessions that have been idle for too long."""
        now_s = self._deps.utc_s()
        for session in self:
            if not session.is_idle:
                session.used_at = now_s  # it is busy, or has readers
            elif now_s - session.used_at >= self._settings.idle_seconds and not session.closing:
                self._close(session, "idle", lambda error: None)
        self._sweep_later()

    def _close(
        self, session: Session, reason: str, done: Callable[[BaseException | None], None]
    ) -> None:
        session.closing = True
        session.end_all("session_closed", CLOSED, running=True)

        def deleted(error: BaseException | None) -> None:
            if error is not None:
                session.closing = False  # it can be closed again; an idle one is, by the next sweep
            else:
                self._sessions.pop(session.id, None)
                self._places.give_back(session.record.owner)
                session.log.open_gate()  # nothing is left that could have a second end
                session.log.close("session_closed", reason=reason)
            done(error)

        on_written(self._ledger.delete(session.id), deleted)
