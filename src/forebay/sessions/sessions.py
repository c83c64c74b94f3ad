"""All sessions of one gateway: made, found, branched, ended; bounded in number and in age."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from forebay.relay.problem import Problem
from forebay.sessions.conversation import CONTEXT_TOKENS_UNKNOWN, Conversation, Room
from forebay.sessions.events import EventLog
from forebay.sessions.record import SessionRecord
from forebay.sessions.refusals import (
    Refusal,
    history_too_large,
    session_closing,
    session_not_found,
    shutting_down,
)
from forebay.sessions.rooms import Rooms
from forebay.sessions.session import CLOSED, Session
from forebay.sessions.writing import Writing, when_written, when_written_in_time

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from forebay.clock import TimerHandle
    from forebay.sessions.figures import SessionFigures
    from forebay.sessions.ledger import Ledger
    from forebay.sessions.surroundings import Surroundings
    from forebay.settings import SessionsSettings

logger = logging.getLogger("forebay.sessions")

SWEEP_S_MAX = 60.0
"""How often sessions are looked at that may have been idle for too long."""
AGAIN_S = 2.0
"""How long after a failure outcomes are written again."""
FLUSH_S = 2.0
"""How long the ledger may take for the last outcomes, when the gateway stops."""


class NewSession(Struct, frozen=True):
    """What a session is to be."""

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
        ledger: Ledger,
        around: Surroundings,
        figures: SessionFigures,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._around = around
        self.rooms = Rooms(around.relay, around.clock)
        self._writing = Writing(self._write_later, figures.ended)
        self._epoch = around.new_id("epoch")
        self._sessions: dict[str, Session] = {}
        self._coming = 0  # sessions that are being written
        self._unwritten: list[Callable[[], None]] = []  # at most one for each pending prompt
        self._again: TimerHandle | None = None
        self._sweeping: TimerHandle | None = None
        self._draining = self._finished = False
        figures.held = lambda: len(self._sessions)
        figures.pending = lambda: sum(session.line.pending for session in self)

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._sessions.values()))

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._sessions

    # -- the life of all of them

    async def start(self) -> None:
        """Take over what the last process left; raises StoreFailed."""
        records = await asyncio.wrap_future(self._ledger.recover())
        # All are loaded before the first goes on: should the store fail in between, nothing runs.
        loads = [await asyncio.wrap_future(self._ledger.load(record)) for record in records]
        for found in loads:
            self._add(found.record).recover(found)
            await asyncio.sleep(0)  # others have things to do, too
        if records:
            logger.info(
                "%d %s on", len(records), "session goes" if len(records) == 1 else "sessions go"
            )
        self._sweep_later()

    def revoke(self, owners: Collection[str]) -> None:
        """Send away those who read sessions of keys that are gone."""
        for session in self:
            if session.record.owner in owners:
                session.log.drop_readers("unauthorized")

    def drain(self) -> None:
        """Take nothing more: what is queued ends at once, what runs may finish."""
        self._draining = True
        for session in self:
            session.end_all("shutting_down", "the gateway is shutting down", running=False)

    async def finish(self) -> None:
        """End what is left and every reader, once all outcomes are written, or cannot be."""
        self._finished = True
        self.rooms.stop()
        for timer in (self._again, self._sweeping):
            if timer is not None:
                timer.cancel()
        for session in self:
            session.end_all("shutting_down", "the gateway is shutting down", running=True)
        for write in self._unwritten:
            write()
        flushed = asyncio.wrap_future(self._ledger.flush())
        await asyncio.wait({flushed}, timeout=FLUSH_S)
        flushed.cancel()
        if flushed.done() and not flushed.cancelled():
            flushed.exception()  # what could not be written is not told either
        for session in self:
            session.log.close("stream_closed", reason="shutting_down")

    # -- one of them

    def find(self, session_id: str, owner: str | None) -> Session:
        """Return a session of this owner's, of anybody's for None; raises Refusal."""
        session = self._sessions.get(session_id)
        if session is None or (owner is not None and session.record.owner != owner):
            raise session_not_found()
        return session

    async def settled(self, prompt_id: str) -> None:
        """Wait until the outcome of a prompt is written; raises StoreFailed where it is not yet."""
        for session in self:
            if session.has(prompt_id):
                await session.endings.settled()

    async def create(self, new: NewSession) -> Session:
        """Make a session; raises Refusal or StoreFailed."""
        context = self._around.context_tokens(new.model) or CONTEXT_TOKENS_UNKNOWN
        room = Room(context, new.max_tokens)
        needed = Conversation(new.system).shortage((), room)
        if needed:
            raise history_too_large(needed, room.tokens, "system")
        self._take_place()
        return await self._create(new, ())

    async def branch(self, session: Session) -> Session:
        """Make a session that goes on from another, when its turn in that one's line comes.

        Raises Refusal or StoreFailed. Cancelling it gives up the turn.
        """
        self._take_place()
        try:
            conversation = await session.branch()
        except BaseException:
            self._coming -= 1
            raise
        record = session.record
        new = NewSession(
            record.owner, record.model, record.system, record.max_tokens, record.options
        )
        return await self._create(new, tuple(conversation.turns))

    async def close(self, session: Session, reason: str) -> None:
        """End a session and everything in it; raises Refusal where that is under way already.

        Raises StoreFailed, and then the session is still there. Cancelling it changes nothing.
        """
        if session.closing:
            raise session_closing()
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def told(error: BaseException | None) -> None:
            if not closed.done():
                closed.set_result(None) if error is None else closed.set_exception(error)

        self._close(session, reason, told)
        await closed

    # -- inside

    def _take_place(self) -> None:
        """Count a session that is about to be, so that no two take the last place."""
        if self._draining:
            raise shutting_down()
        if len(self._sessions) + self._coming >= self._settings.max_sessions:
            words = f"there are {self._settings.max_sessions} sessions already"
            raise Refusal(Problem("too_many_sessions", words))
        self._coming += 1

    async def _create(self, new: NewSession, base: tuple[Any, ...]) -> Session:
        """Write a session to the ledger, then have it; a place was taken for it."""
        now_s = self._around.utc_s()
        record = SessionRecord(
            self._around.new_id("ses"), new.owner, new.model, new.system, new.max_tokens,
            new.options, base, now_s, now_s,
        )  # fmt: skip
        made: asyncio.Future[Session] = asyncio.get_running_loop().create_future()

        def written(error: BaseException | None) -> None:
            self._coming -= 1
            session = self._add(record) if error is None else None
            if made.done():
                return
            if session is not None:
                made.set_result(session)
            elif error is not None:
                made.set_exception(error)

        try:
            future = self._ledger.create(record)
        except BaseException:
            self._coming -= 1
            raise
        when_written_in_time(future, written)
        return await made

    def _add(self, record: SessionRecord) -> Session:
        log = EventLog(self._epoch, record.life, self._around.clock)
        session = Session(record, log, self._ledger, self.rooms, self._around, self._writing)
        self._sessions[record.id] = session
        return session

    def _write_later(self, write: Callable[[], None]) -> None:
        if self._finished:
            return  # the next life will give that prompt its end
        self._unwritten.append(write)
        if self._again is None:
            clock = self._around.clock
            logger.warning("outcomes of prompts could not be written; they will be")
            self._again = clock.call_at(clock.monotonic_s() + AGAIN_S, self._write_again)

    def _write_again(self) -> None:
        self._again = None
        writes, self._unwritten = self._unwritten, []
        for write in writes:
            write()

    def _sweep_later(self) -> None:
        clock = self._around.clock
        after_s = min(SWEEP_S_MAX, self._settings.idle_seconds)
        self._sweeping = clock.call_at(clock.monotonic_s() + after_s, self._sweep)

    def _sweep(self) -> None:
        """End what has been idle for too long."""
        now_s = self._around.utc_s()
        for session in self:
            if not session.is_idle:
                session.used_at = now_s  # somebody follows it, or it is at work
            elif now_s - session.used_at >= self._settings.idle_seconds and not session.closing:
                self._close(session, "idle", _nobody_waits)
        self._sweep_later()

    def _close(
        self, session: Session, reason: str, told: Callable[[BaseException | None], None]
    ) -> None:
        session.closing = True
        session.end_all("session_closed", CLOSED, running=True)

        def deleted(error: BaseException | None) -> None:
            if error is not None:
                session.closing = False  # it is still there, and can be closed again
            else:
                self._sessions.pop(session.id, None)
                session.log.open_gate()  # nothing of it is left that could have a second end
                session.log.close("session_closed", reason=reason)
            told(error)

        when_written(self._ledger.delete(session.id), deleted)


def _nobody_waits(error: BaseException | None) -> None:
    """Leave it: what could not be deleted is idle still, and is found again."""
