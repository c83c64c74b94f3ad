"""The tasks that connect a replica with the store: heartbeats, sending, reading, polling peers.

Each makes one call at a time, so what comes up during a call shares the next one: the busier the
replica, the larger its batches. All failures are counted in one place, a circuit breaker: when a
task has failed for `BREAKER_S`, the replica continues standalone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from forebay.coordination.protocol.decoding import MessageReader
from forebay.coordination.protocol.messages import ITEMS_MAX, encode
from forebay.coordination.store.port import StoreLost

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from typing import Any

    from forebay.clock import Timers
    from forebay.coordination.replica import Replica
    from forebay.coordination.store.port import Store

logger = logging.getLogger("forebay.coordination")
M = TypeVar("M")
R = TypeVar("R")

BREAKER_S = 1.0
"""How long a task may fail before the replica continues standalone."""
RETRY_S = 0.1
"""The pause after a failed call."""
HEARTBEATS = 3
"""Heartbeats in one lease."""
START: bytes = b"0-0"
PARTITIONED = "partitioned from the other gateways, which have a leader: starting nothing"
ALL_STANDALONE = "the other gateways have no leader either: continuing standalone"
CANCEL_AGAIN_S = 0.1
"""How long a task may go on after it was cancelled, until it is cancelled again."""


class StoreTasks:
    """One replica's tasks; `wake` and `heartbeat_now` make them act before their time."""

    def __init__(self, replica: Replica, store: Store, clock: Timers, lease_s: float) -> None:
        self._replica = replica
        self._roles = replica.roles
        self._store = store
        self._clock = clock
        self._interval_s = lease_s / HEARTBEATS
        self._mail = asyncio.Event()
        self._heartbeat_due = asyncio.Event()
        self._leading = asyncio.Event()
        self._joined = asyncio.Event()
        self._alone = asyncio.Event()
        self._failing_since_s: dict[str, float] = {}  # by task
        self._why: dict[str, str] = {}  # its last error, by task
        self._reader = MessageReader(_complain)
        self._final_orders: tuple[str, list[tuple[str, bytes]]] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = False
        self._closed = False

    async def start(self) -> None:
        """Begin, and return when the store has answered once, or is known not to."""
        tasks = (
            self._heartbeat,
            self._send,
            self._read_orders,
            self._read_batches,
            self._poll_peers,
        )
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run(task)) for task in tasks]
        await self._joined.wait()

    def stop(self) -> None:
        """Stop all tasks; may be called twice."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Leave the fleet and close the connections; may be called twice."""
        while not all(task.done() for task in self._tasks):
            self.stop()  # again: the driver can swallow a cancellation together with its own
            await asyncio.wait(self._tasks, timeout=CANCEL_AGAIN_S)
        if self._closed:
            return
        self._closed = True
        try:
            await self._leave_fleet()
        finally:  # also where nobody wants to wait for it any more
            with contextlib.suppress(Exception):  # it may be gone; there is nothing to keep
                await self._store.close()

    async def _leave_fleet(self) -> None:
        roles = self._roles
        with contextlib.suppress(StoreLost):
            try:
                await self._resign()
            except StoreLost:  # one call may fail, and the others would wait for a whole lease
                await self._resign()
            batches = [encode(batch) for batch in roles.follower.final_batches()]
            if batches:  # what it had is free now, not when this replica is missed
                await self._store.send_up(roles.epoch, batches)
            await self._store.leave(roles.about.member)

    @property
    def awake(self) -> bool:
        """Whether what there is will be sent in the next turn of the loop."""
        return self._mail.is_set()

    def wake(self) -> None:
        """Send what there is, in the next turn of the loop."""
        self._mail.set()

    def heartbeat_now(self) -> None:
        """Send a heartbeat at once: something has changed."""
        self._heartbeat_due.set()

    # -- tasks

    async def _run(self, task: Callable[[], Any]) -> None:
        """Repeat a task until all is stopped; a bug in one of them must not end it silently.

        The flag is needed beside cancelling: the driver may turn a cancellation into an error.
        """
        while not self._stopped:
            try:
                await task()
            except StoreLost as error:
                self._failed(task.__name__, str(error))
                await self._pause(RETRY_S)
            except Exception:
                logger.exception("store task failed", extra={"task": task.__name__})
                await self._pause(RETRY_S)

    async def _heartbeat(self) -> None:
        replica = self._replica
        if replica.resigned:
            await self._resign()
        self._heartbeat_due.clear()
        self._check_readers()
        asked_s = self._clock.monotonic_s()
        reply = await self._store.heartbeat(self._roles.registration(may_lead=not replica.resigned))
        self._worked("_heartbeat")
        replica.on_store_reply(reply, asked_s)
        self._joined.set()
        if replica.leads:
            self._leading.set()
        wait_s = self._interval_s
        if not replica.leads:  # ask again right when the lease expires
            wait_s = min(wait_s, reply.left_s + RETRY_S / 10 if reply.leader else RETRY_S)
        await self._pause(wait_s, self._heartbeat_due)

    async def _resign(self) -> None:
        """Give up leadership and send the last orders, again if that failed before."""
        if self._roles.leads:
            token, orders = self._roles.token(), self._roles.resign(self._clock.monotonic_s())
            self._final_orders = token, [(name, encode(one)) for name, one in orders]
        if self._final_orders is not None:
            await self._store.send_down(*self._final_orders, last=True)
            self._final_orders = None

    async def _send(self) -> None:
        roles = self._roles
        await self._mail.wait()
        self._mail.clear()
        batches, epoch = roles.take_batches(), roles.epoch
        for batch in batches:  # one by one: a long announcement must not be one long call
            await self._send_while(
                lambda: roles.epoch == epoch and roles.follower.mode == "coordinated",
                partial(self._store.send_up, epoch, [encode(batch)]),
            )
        orders, token = roles.take_orders(self._clock.monotonic_s()), roles.token()
        for piece in _pieces(orders, lambda order: len(order[1].items)):
            payloads = [(name, encode(one)) for name, one in piece]
            sent = await self._send_while(
                lambda: bool(token) and roles.token() == token,
                partial(self._store.send_down, token, payloads),
            )
            if sent is False:
                roles.step_down("another gateway holds the lease", self._clock.monotonic_s())

    async def _send_while(
        self, matters: Callable[[], bool], send: Callable[[], Coroutine[Any, Any, R]]
    ) -> R | None:
        """Send until it works or no longer matters; a repeated message is known by its number."""
        while matters() and not self._stopped:
            try:
                sent = await send()
            except StoreLost as error:
                self._failed("_send", str(error))
                await self._pause(RETRY_S)
            else:
                self._worked("_send")
                return sent
        return None

    async def _read_orders(self) -> None:
        """Read the leader's orders; after a failure from the start, for entry ids may go back."""
        member, after = self._replica.about.member, START
        while not self._stopped:
            entries = await self._store.read_down(member, after, self._interval_s)
            self._worked("_read_orders")
            if entries:
                after = entries[-1].id
                read = [self._reader.orders(entry.payload) for entry in entries]
                orders = [one for one in read if one is not None]
                self._replica.submit(partial(self._roles.receive_orders, orders))

    async def _read_batches(self) -> None:
        """Read what the other replicas send to the leader, while this one leads."""
        await self._leading.wait()
        replica, epoch, after = self._replica, self._replica.epoch, START
        while replica.leads and replica.epoch == epoch and not self._stopped:
            entries = await self._store.read_up(epoch, after, self._interval_s)
            self._worked("_read_batches")
            if entries:
                after = entries[-1].id
                read = [self._reader.batch(entry.payload) for entry in entries]
                batches = [batch for batch in read if batch is not None]
                for piece in _pieces(batches, lambda batch: len(batch.items)):
                    if replica.epoch != epoch:
                        break  # re-elected meanwhile: these were for the previous epoch
                    replica.submit(partial(self._roles.receive_batches, piece))
                    await asyncio.sleep(0)  # heartbeats must not wait for a long queue
        self._worked("_read_batches")
        if not replica.leads:
            self._leading.clear()

    async def _poll_peers(self) -> None:
        """While standalone, ask the other replicas whether they still have a leader."""
        await self._alone.wait()
        replica, before, said = self._replica, False, False
        while replica.mode in ("alone", "cut_off") and not self._stopped:
            cut_off = await replica.ask_peers(self._roles.roster.addresses())
            replica.submit(partial(self._roles.set_cut_off, cut_off))
            if cut_off == before and cut_off != said:  # at first the others may not have noticed
                said = cut_off
                logger.warning(PARTITIONED if said else ALL_STANDALONE)
            before = cut_off
            await self._pause(self._interval_s)
        self._alone.clear()

    # -- the circuit breaker

    def _worked(self, task: str) -> None:
        self._failing_since_s.pop(task, None)

    def _check_readers(self) -> None:
        """Send no heartbeat while nothing can be read: the others would wait for this one."""
        for task in ("_read_orders", "_read_batches"):
            since_s = self._failing_since_s.get(task)
            if since_s is not None and self._clock.monotonic_s() - since_s >= BREAKER_S:
                raise StoreLost(f"messages cannot be read: {self._why.get(task)}")

    def _failed(self, task: str, why: str) -> None:
        now_s = self._clock.monotonic_s()
        self._why[task] = why
        since_s = self._failing_since_s.setdefault(task, now_s)
        if since_s == now_s:
            self._heartbeat_due.set()
        elif now_s - since_s >= BREAKER_S:
            self._replica.on_store_lost(why)
            self._alone.set()
            self._joined.set()

    async def _pause(self, wait_s: float, until: asyncio.Event | None = None) -> None:
        """Wait by the clock in use, or until an event is set."""
        if self._stopped:
            return
        over = until or asyncio.Event()
        timer = self._clock.call_at(self._clock.monotonic_s() + wait_s, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()


def _complain(what: str) -> None:
    logger.warning("unreadable message", extra={"error": what})


def _pieces(messages: Sequence[M], size: Callable[[M], int]) -> Iterator[list[M]]:
    """Split messages into groups of about `ITEMS_MAX` items."""
    piece: list[M] = []
    held = 0
    for message in messages:
        piece.append(message)
        held += size(message)
        if held >= ITEMS_MAX:
            yield piece
            piece, held = [], 0
    if piece:
        yield piece
