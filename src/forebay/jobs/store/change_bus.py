"""Notification of changes: listeners in this program, and other programs through PostgreSQL.

A notification is written by the transaction that it tells of (NOTIFY): it is sent when that is
committed, not at all when it is not, and costs no commit of its own. It holds what changed, as far
as somebody elsewhere may be waiting for it: a job to run, one to stop, one that is followed. What
would be long says only "resync", and everybody asks the database. Notifications are never needed:
whatever they tell is found by polling, too, only later.

A notification is JSON: the sender, the changes, whether batches were made or cancelled, whether to
resync, whether GPU memory was given back. What cannot be read (a newer program wrote it) means
"resync".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from sqlalchemy import text

from forebay.jobs.job import Change
from forebay.storage.database import defer
from forebay.storage.pg_listener import STOP_S, PgListener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Connection

    from forebay.jobs.store.job_store import JobStore
    from forebay.storage.database import Database

logger = logging.getLogger("forebay.jobs")
CHANNEL = "forebay_jobs"
BYTES_MAX = 7_900
"""PostgreSQL takes less than 8,000 in one notification."""
CHANGES_MAX = 200
"""More than so many in one transaction, and to resync is cheaper than to read them."""
STAGE_CHARS_MAX = 200
KEY = ("notes", 0)
"""After the batches' counts: what is told last holds up nobody else's commit for longer."""
DELIVERED_MAX = 500
"""Changes for the loop in one go: a cancelled batch of 50,000 lines must not hold it up."""


class JobFollowers:
    """Who follows which job: its next change wakes them, whichever program made it.

    Notifications of other gateways may get lost: so whoever waits looks again after a while all
    the same, which is why `next_change` has a limit.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, list[asyncio.Event]] = {}
        self.stopped = False
        """Whether nobody should wait any longer."""

    def stop(self) -> None:
        """Wake everyone for the last time."""
        self.stopped = True
        self.wake_all()

    @contextlib.contextmanager
    def follow(self, job_id: int) -> Iterator[asyncio.Event]:
        """Follow a job; the event is for `next_change`."""
        changed = asyncio.Event()
        self._waiting.setdefault(job_id, []).append(changed)
        try:
            yield changed
        finally:
            waiting = self._waiting[job_id]
            waiting.remove(changed)
            if not waiting:
                del self._waiting[job_id]

    async def next_change(self, changed: asyncio.Event, limit_s: float) -> None:
        """Wait for a change, or for a while; changes while nobody waited are not missed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await changed.wait()
        changed.clear()

    def wake(self, changes: list[Change]) -> None:
        for change in changes:
            for changed in self._waiting.get(change.id, ()):
                changed.set()

    def wake_all(self) -> None:
        for waiting in self._waiting.values():
            for changed in waiting:
                changed.set()


class Notification(Struct, frozen=True, array_like=True):
    """One message to other programs. The order of the fields is that on the wire."""

    sender: str
    changes: tuple[Change, ...] = ()
    batches: bool = False
    """Whether a batch was made or cancelled."""
    resync: bool = False
    """Whether more has changed than is said."""


class PgNotifications:
    """The notifications of one transaction, sent at its end."""

    def __init__(self, sender: str) -> None:
        self._sender = sender
        self.changes: list[Change] = []
        self.batches = False

    def __call__(self, connection: Connection) -> None:
        payload = encode(self._sender, self.changes, batches=self.batches)
        if payload is not None:
            given = {"channel": CHANNEL, "payload": payload}
            connection.execute(text("SELECT pg_notify(:channel, :payload)"), given)


class ChangeBus:
    """Listeners are called on the writing thread, or on the one that receives notifications."""

    def __init__(self, *, shared: bool) -> None:
        """`shared` says whether other programs may use the database."""
        self.listeners: list[Callable[[Change], None]] = []
        """Called with every change that is committed."""
        self.resync_listeners: list[Callable[[], object]] = []
        """Called when other programs may have changed anything at all; so are the next."""
        self.batch_listeners: list[Callable[[], object]] = []
        """Called when other programs have made or cancelled a batch."""
        self.shared = shared
        self._name = secrets.token_hex(8)  # ours among the senders
        self._pg_listener: PgListener | None = None

    # -- to other programs, when the transaction is committed

    def notify(self, connection: Connection, changes: Sequence[Change]) -> None:
        """Tell other programs of changes, as far as they care."""
        if changes and self.shared:
            self._pending(connection).changes += filter(_concerns_others, changes)

    def notify_batches(self, connection: Connection) -> None:
        """Tell other programs that a batch was made or cancelled."""
        if self.shared:
            self._pending(connection).batches = True

    def _pending(self, connection: Connection) -> PgNotifications:
        return defer(connection, KEY, lambda: PgNotifications(self._name))

    # -- in this program

    def announce(self, changes: Sequence[Change]) -> None:
        """Call the listeners with changes that are committed."""
        for change in changes:
            for listener in self.listeners:
                try:
                    listener(change)
                except Exception:  # a listener's bug is not the store's
                    logger.exception("a listener failed", extra={"job": change.id})

    # -- from other programs

    def listen(self, database: Database) -> None:
        """Receive notifications from now on; no effect on SQLite. Stop it in the end."""
        if self.shared and self._pg_listener is None:
            self._pg_listener = PgListener(database, CHANNEL, self.receive, self.resync)
            self._pg_listener.start()

    def stop_listening(self, limit_s: float = STOP_S) -> None:
        """Receive nothing more; may be called twice."""
        listener, self._pg_listener = self._pg_listener, None
        if listener is not None:
            listener.stop(limit_s)

    def receive(self, payload: str) -> None:
        """Pass on a notification, unless it is our own."""
        received = decode(payload)
        if received.sender == self._name:
            return
        if received.resync:
            self.resync()
        if received.batches:
            _call_all(self.batch_listeners)
        replace = msgspec.structs.replace
        self.announce([replace(change, here=False, waited_s=None) for change in received.changes])

    def resync(self) -> None:
        """Have everybody ask the database: what others have changed is not known."""
        for listeners in (self.resync_listeners, self.batch_listeners):
            _call_all(listeners)


class LoopListener:
    """Calls back on the event loop with all changes since the last time, in order."""

    def __init__(
        self,
        store: JobStore,
        on_changes: Callable[[list[Change]], None],
        on_resync: Callable[[], object] = lambda: None,
    ) -> None:
        self._bus = store.changes
        self._on_changes = on_changes
        self._on_resync = on_resync
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._pending: list[Change] = []

    def start(self) -> None:
        self._bus.listeners.append(self._add)
        self._bus.resync_listeners.append(self._resync)

    def stop(self) -> None:
        """Listen no longer; may be called twice."""
        with contextlib.suppress(ValueError):
            self._bus.listeners.remove(self._add)
            self._bus.resync_listeners.remove(self._resync)

    def _add(self, change: Change) -> None:
        with self._lock:
            self._pending.append(change)
            first = len(self._pending) == 1
        if first:  # one call of the loop serves all that gathers until it comes
            call_soon(self._loop, self._deliver)

    def _resync(self) -> None:
        call_soon(self._loop, self._on_resync)

    def _deliver(self) -> None:
        with self._lock:
            changes = self._pending[:DELIVERED_MAX]
            self._pending = self._pending[DELIVERED_MAX:]
            more = bool(self._pending)
        if more:  # others have a turn in between
            self._loop.call_soon(self._deliver)
        self._on_changes(changes)


def call_soon(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *given: object) -> None:
    """Call back on an event loop, from any thread; no effect where it has closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *given)


def encode(sender: str, changes: Sequence[Change], *, batches: bool) -> str | None:
    """Return a notification, or None for nothing; one that would be long says "resync".

    >>> encode("a", [Change(1, "chat", "model:m", "queued", None)], batches=False)
    '["a",[[1,"chat","model:m","queued",null,null,null,null,0,true,""]],false,false]'
    """
    if not changes and not batches:
        return None
    if len(changes) <= CHANGES_MAX:
        whole = msgspec.json.encode(Notification(sender, tuple(changes), batches))
        if len(whole) <= BYTES_MAX:
            return whole.decode()
    return msgspec.json.encode(Notification(sender, (), batches, resync=True)).decode()


def decode(payload: str) -> Notification:
    """Return what a notification says.

    >>> decode("from the future").resync
    True
    """
    try:
        return msgspec.json.decode(payload, type=Notification)
    except msgspec.MsgspecError:
        return Notification("", resync=True)


def _concerns_others(change: Change) -> bool:
    """Say whether other programs want to know: lines of batches are followed by nobody.

    But another gateway may run a new line, and must stop one that was ended under it.
    """
    if change.batch_id is None:
        return True
    return change.status == "queued" or (change.before == "running" and change.fence > 0)


def _call_all(listeners: Sequence[Callable[[], object]]) -> None:
    for listener in list(listeners):
        try:
            listener()
        except Exception:  # as above
            logger.exception("a listener failed")
