"""The gateway's sessions, from the outside: their ledger is opened when it is needed.

That is at the start where there may be sessions, else when the first one comes: a gateway without
sessions leaves no file behind. A ledger that cannot be opened costs the sessions, not the live
requests.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from forebay.core import Arrived
from forebay.errors import KEY_REVOKED, ForebayError, StoreFailed
from forebay.gateway.hot.callers import conversation_of
from forebay.gateway.hot.keys import NOT_READ
from forebay.gateway.http.lazy_open import LazyOpen, may_hold
from forebay.gateway.http.store_timeout import in_time, store_unavailable
from forebay.relay.call import InferenceCall
from forebay.relay.fields import find_model, prompt_tokens
from forebay.relay.openai import OPENAI
from forebay.relay.problem import WORDS, Problem
from forebay.sessions.record import is_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from forebay.gateway.hot.admission import Admission
    from forebay.gateway.hot.keys import KeyRing
    from forebay.gateway.records.made_keys import MadeKeys
    from forebay.sessions.deps import SessionDeps
    from forebay.sessions.ledger import SessionLedger
    from forebay.sessions.prompt import Prompt
    from forebay.sessions.record import SessionRecord
    from forebay.sessions.sessions import Sessions
    from forebay.settings import SessionsSettings

FAMILY = replace(OPENAI, comments=False)
"""Without the comments that keep a connection open: only the session reads this stream."""
TARGET = b"/v1/chat/completions"
ROUTE = "/session/{id}/prompt"
CLOSE_S = 5.0


class SessionCalls:
    """Builds the calls of prompts, with the session's model and the limits of its key.

    Built when the prompt is at the head of its session, not when it was accepted: aliases, keys
    and nodes may have changed in between, and a key that was revoked must not run anything.
    """

    def __init__(self, admission: Admission, keys: KeyRing, made: MadeKeys) -> None:
        self._admission = admission
        self._keys = keys
        self._made = made

    def make(self, record: SessionRecord, prompt: Prompt, body: bytes) -> InferenceCall | Problem:
        """Return the call, or why there is none; `unauthorized` while the key is not in force."""
        sender = prompt.sender
        key = self._keys.of_owner(sender.key)
        if not self._keys.is_in_force(sender.key):
            if sender.key in self._made.revoked():
                return Problem("cancelled", KEY_REVOKED)
            return Problem("unauthorized", WORDS["unauthorized"])
        if not self._admission.may_use(key, record.model):
            return Problem("forbidden", "this key may not use this model", "model")
        model, fallbacks = self._admission.resolve(record.model)
        if key is not None and key.models:
            fallbacks = tuple(name for name in fallbacks if name in key.models)
        headers = b"content-type: application/json\r\nx-request-id: %b\r\n" % prompt.id.encode()
        if sender.trace:
            headers += b"traceparent: %b\r\n" % sender.trace.encode("latin-1")
        arrival = Arrived(
            id=prompt.id,
            model=model,
            family=FAMILY.name,
            user=sender.user,
            priority=sender.priority,
            prompt_tokens=prompt_tokens(body),
            output_limit=record.max_tokens,
            size_bytes=len(body),
            weight=key.weight if key is not None else 1.0,
            affinity=conversation_of(record.owner, "", record.id),
            max_wait_s=sender.max_wait_s,
            stream=True,
            key=sender.key,
            key_running_max=key.max_running if key is not None else 0,
            fallbacks=fallbacks,
            patient=True,
            conversation=record.id,
        )
        return InferenceCall(
            arrival,
            FAMILY,
            route=ROUTE,
            target=TARGET,
            body=body,
            asked_model=record.model,
            header_block=headers,
            credentials=sender.credentials,
            model_span=find_model(body),
        )


class SessionHost:
    """One gateway's sessions; `ready()` before any of them is touched."""

    def __init__(
        self,
        settings: SessionsSettings,
        jobs_database: str,
        deps: SessionDeps,
        replica: Callable[[], str],
        keys: KeyRing,
    ) -> None:
        """`replica` returns this gateway's name among several; "" where it works alone."""
        self.settings = settings
        self.figures = deps.figures
        self._url = settings.database or beside(jobs_database)
        self._deps = deps
        self._replica = replica
        self._keys = keys
        self._ledger: SessionLedger | None = None
        self._opening = LazyOpen("the session database", self._open, deps.clock)

    async def start(self) -> None:
        """Go on with what is there; a ledger that fails is tried again later."""
        if await asyncio.to_thread(may_hold, self._url):
            await self._opening.try_now()

    async def ready(self) -> Sessions:
        """Return the sessions; raises HttpError where the ledger cannot be opened."""
        self._replica()  # refuses while it is not known whose sessions these are
        return await self._opening.ready()

    async def _open(self) -> Sessions:
        if self._keys.sealed:  # prompts of keys that are not known would end as unauthorized
            raise StoreFailed(NOT_READ)
        if self._ledger is None:
            self._ledger = await asyncio.to_thread(_ledger, self._url, self._replica())
        ledger = self._ledger
        await asyncio.to_thread(ledger.open)
        from forebay.sessions.sessions import Sessions

        sessions = Sessions(self.settings, ledger, self._deps)
        try:
            await asyncio.wrap_future(ledger.adopt({key.name: key.owner for key in self._keys}))
            await sessions.start()
        except BaseException:
            await asyncio.to_thread(ledger.close, CLOSE_S)
            raise
        return sessions

    def has_lost_file(self) -> bool:
        """Say whether the file of the ledger was deleted or replaced while it was in use."""
        return self._ledger is not None and self._ledger.has_lost_file()

    def has(self, session_id: str) -> bool:
        """Say whether a session is here, as far as the ledger has been opened."""
        sessions = self._opening.value
        return sessions is not None and session_id in sessions

    async def holder(self, session_id: str) -> str:
        """Return which of several gateways has a session whose id does not say; "" for nobody.

        Raises HttpError where the ledger cannot be asked.
        """
        if not is_plain(session_id) or not self._url.startswith("postgres"):
            return ""  # nobody else could have it
        await self._opening.ready()
        assert self._ledger is not None
        with _store_errors():
            return await in_time(self._ledger.holder(session_id))

    async def flush(self, prompt_id: str) -> None:
        """Wait until the outcome of a prompt is stored; raises HttpError where it cannot be now."""
        if (sessions := self._opening.value) is not None:
            with _store_errors():
                await sessions.flush(prompt_id)

    def bounds_changed(self) -> None:
        """Let those try again who wait for room: there may be more now."""
        if (sessions := self._opening.value) is not None:
            sessions.waiters.try_all()

    def revoke(self, gone: Collection[str], revoked: Collection[str]) -> None:
        """Send away readers whose keys are gone, and end prompts of those that were revoked."""
        if (sessions := self._opening.value) is not None:
            sessions.revoke(gone, revoked)

    def drain(self) -> None:
        """Take nothing more; what is queued ends now, what runs may finish."""
        self._opening.stopped = True
        if (sessions := self._opening.value) is not None:
            sessions.drain()

    async def finish(self) -> None:
        """Write the last outcomes, tell them, and let every reader go."""
        if (sessions := self._opening.value) is not None:
            await sessions.finish()

    async def stop(self) -> None:
        if await self._opening.stop() and self._ledger is not None:
            await asyncio.to_thread(self._ledger.close, CLOSE_S)


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except ForebayError as error:
        raise store_unavailable("the session database", error) from error


def _ledger(url: str, replica: str) -> SessionLedger:
    """Load what is not needed without sessions."""
    from forebay.sessions.ledger import SessionLedger

    return SessionLedger(url, replica)


def beside(url: str) -> str:
    """Return the database for sessions beside that of the jobs: another file, or the same server.

    A file of their own, because SQLite takes one writer at a time, and neither should wait.

    >>> beside("sqlite:///data/forebay.db"), beside("postgresql://host/name"), beside("sqlite://")
    ('sqlite:///data/forebay.sessions.db', 'postgresql://host/name', 'sqlite://')
    """
    if not url.startswith("sqlite") or ":///" not in url:
        return url
    address, mark, query = url.partition("?")
    folder, slash, name = address.rpartition("/")
    stem, dot, ending = name.rpartition(".")
    if not name or name.startswith(":"):
        return url
    own = f"{stem}.sessions.{ending}" if dot and stem else f"{name}.sessions"
    return f"{folder}{slash}{own}{mark}{query}"
