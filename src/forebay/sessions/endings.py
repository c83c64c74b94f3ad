"""Outcomes are written before they are told, and what cannot be written is not told.

The terminal event gets its number, the number goes into the ledger with the outcome, and the event
log's gate stays closed until that is committed. A write that fails is tried again until it
succeeds; the line of the session moves on meanwhile. Told before it is written, an outcome could
be followed by another one after a crash.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.errors import StoreFailed
from forebay.sessions.telling import tell_end
from forebay.sessions.writing import when_written

if TYPE_CHECKING:
    from forebay.sessions.events import EventLog
    from forebay.sessions.ledger import Ledger
    from forebay.sessions.prompt import Prompt
    from forebay.sessions.writing import Writing


class Endings:
    """The outcomes of one session's prompts on their way to the ledger and to the readers."""

    def __init__(self, log: EventLog, ledger: Ledger, writing: Writing) -> None:
        self._log = log
        self._ledger = ledger
        self._writing = writing
        self._refused: set[str] = set()  # prompts whose outcome could not be written yet

    def tell(self, prompt: Prompt, now_s: float) -> None:
        """Write the outcome of a prompt that has just ended, and tell it once it is written."""
        self._log.hold()
        self._write(prompt, tell_end(self._log, prompt), now_s)

    def _write(self, prompt: Prompt, event_id: int, now_s: float) -> None:
        def written(error: BaseException | None) -> None:
            if error is not None:
                self._refused.add(prompt.id)
                self._writing.later(lambda: self._write(prompt, event_id, now_s))
                return
            self._refused.discard(prompt.id)
            prompt.told = True
            self._log.release()

        when_written(self._ledger.end(prompt, event_id, now_s), written)

    async def settled(self) -> None:
        """Wait until the outcomes so far are written; raises StoreFailed where they are not yet."""
        await asyncio.wrap_future(self._ledger.flush())
        if self._refused:
            raise StoreFailed("outcomes of prompts could not be written yet")
