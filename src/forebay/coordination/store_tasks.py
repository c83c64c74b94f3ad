"""The four errands of a replica: sign at the store, send, and read what is for it and its office.

Each is one task that does one thing at a time, so whatever comes up while a call is under way
waits for the next one and shares it: the busier, the larger the batches. Every failure ends up in
one place, which counts how long nothing has worked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from forebay.coordination.protocol.decoding import Reader
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
"""How long nothing may work before the replica goes on alone."""
RETRY_S = 0.1
"""How long after a failure the next try comes."""
BEATS = 3
"""Signs of life in one lease."""
START: bytes = b"0-0"
CANCEL_AGAIN_S = 0.1
"""How long an errand may go on after it was cancelled, until it is cancelled again."""


class Links:
    """What connects one replica with the store."""

    def __init__(self, replica: Replica, store: Store, clock: Timers, lease_s: float) -> None:
        self._replica = replica
        self._store = store
        self._clock = clock
        self._beat_s = lease_s / BEATS
        self._mail = asyncio.Event()
        self._beat = asyncio.Event()
        self._leading = asyncio.Event()
        self._joined = asyncio.Event()
        self._alone = asyncio.Event()
        self._failing_since_s: dict[str, float] = {}  # by errand
        self._why: dict[str, str] = {}  # its last error, by errand
        self._reader = Reader(_complain)
        self._last_words: tuple[str, list[tuple[str, bytes]]] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = False
        self._closed = False

    async def start(self) -> None:
        """Begin, and return when the store has answered once, or is known not to."""
        errands = (self._sign, self._send, self._read_down, self._read_up, self._ask_others)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run(errand)) for errand in errands]
        await self._joined.wait()

    def stop(self) -> None:
        """Stop all errands; may be called twice."""
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
            await self._say_goodbye()
        finally:  # also where nobody wants to wait for it any more
            with contextlib.suppress(Exception):  # it may be gone; there is nothing to keep
                await self._store.close()

    async def _say_goodbye(self) -> None:
        replica = self._replica
        with contextlib.suppress(StoreLost):
            try:
                await self._resign()
            except StoreLost:  # one call may fail, and the others would wait for a whole lease
                await self._resign()
            batches = [encode(batch) for batch in replica.last_batches()]
            if batches:  # what it had is free now, not when this replica is missed
                await self._store.send_up(replica.epoch, batches)
            await self._store.leave(replica.about.member)

    @property
    def awake(self) -> bool:
        """Whether what there is will be sent in the next turn of the loop."""
        return self._mail.is_set()

    def wake(self) -> None:
        """Send what there is, in the next turn of the loop."""
        self._mail.set()

    def beat_now(self) -> None:
        """Sign at once: something has changed."""
        self._beat.set()

    # -- errands

    async def _run(self, errand: Callable[[], Any]) -> None:
        """Do an errand until all is stopped; a bug in one of them must not end it silently.

        The flag is needed beside the cancelling: a client may turn that into an error of its own.
        """
        while not self._stopped:
            try:
                await errand()
            except StoreLost as error:
                self._failed(errand.__name__, str(error))
                await self._pause(RETRY_S)
            except Exception:
                logger.exception("an errand failed", extra={"errand": errand.__name__})
                await self._pause(RETRY_S)

    async def _sign(self) -> None:
        replica = self._replica
        if replica.resigned:
            await self._resign()
        self._beat.clear()
        self._refuse_deafness()
        asked_s = self._clock.monotonic_s()
        standing = await self._store.beat(replica.sign())
        self._worked("_sign")
        replica.stand(standing, asked_s)
        self._joined.set()
        if replica.leads:
            self._leading.set()
        wait_s = self._beat_s
        if not replica.leads:  # be there when the lease runs out
            wait_s = min(wait_s, standing.left_s + RETRY_S / 10 if standing.leader else RETRY_S)
        await self._pause(wait_s, self._beat)

    async def _resign(self) -> None:
        """Lead no more, and say so; what was not heard is said again."""
        replica = self._replica
        if replica.leads:
            token, orders = replica.token(), replica.last_orders()
            self._last_words = token, [(name, encode(one)) for name, one in orders]
        if self._last_words is not None:
            await self._store.send_down(*self._last_words, last=True)
            self._last_words = None

    async def _send(self) -> None:
        replica = self._replica
        await self._mail.wait()
        self._mail.clear()
        batches, epoch = replica.take_batches(), replica.epoch
        for batch in batches:  # one by one: a long announcement must not be one long call
            await self._send_while(
                lambda: replica.epoch == epoch and replica.mode == "coordinated",
                partial(self._store.send_up, epoch, [encode(batch)]),
            )
        orders, token = replica.take_orders(), replica.token()
        for piece in _pieces(orders, lambda order: len(order[1].items)):
            payloads = [(name, encode(one)) for name, one in piece]
            sent = await self._send_while(
                lambda: bool(token) and replica.token() == token,
                partial(self._store.send_down, token, payloads),
            )
            if sent is False:
                replica.lost_lease()

    async def _send_while(
        self, matters: Callable[[], bool], send: Callable[[], Coroutine[Any, Any, R]]
    ) -> R | None:
        """Send until it works, for as long as it matters: what arrives twice has a number."""
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

    async def _read_down(self) -> None:
        """Read what the leader says; after a failure from the start, for ids may go back."""
        member, after = self._replica.about.member, START
        while not self._stopped:
            entries = await self._store.read_down(member, after, self._beat_s)
            self._worked("_read_down")
            if entries:
                after = entries[-1].id
                read = [self._reader.orders(entry.payload) for entry in entries]
                self._replica.hear([orders for orders in read if orders is not None])

    async def _read_up(self) -> None:
        """Read what the replicas say to the leader, while this one leads."""
        await self._leading.wait()
        replica, epoch, after = self._replica, self._replica.epoch, START
        while replica.leads and replica.epoch == epoch and not self._stopped:
            entries = await self._store.read_up(epoch, after, self._beat_s)
            self._worked("_read_up")
            if entries:
                after = entries[-1].id
                read = [self._reader.batch(entry.payload) for entry in entries]
                batches = [batch for batch in read if batch is not None]
                for piece in _pieces(batches, lambda batch: len(batch.items)):
                    if replica.epoch != epoch:
                        break  # it leads again, under a number that this was not said to
                    replica.receive(piece)
                    await asyncio.sleep(0)  # signs of life must not wait for a long line
        self._worked("_read_up")
        if not replica.leads:
            self._leading.clear()

    async def _ask_others(self) -> None:
        """When alone, find out whether that is true of all, or only of this one."""
        await self._alone.wait()
        replica, before, said = self._replica, False, False
        while replica.mode in ("alone", "cut_off") and not self._stopped:
            cut_off = await replica.ask_peers(replica.addresses())
            replica.learn(cut_off=cut_off)
            if cut_off == before and cut_off != said:  # at first the others may not have noticed
                said = cut_off
                logger.warning("cut off from the others" if said else "the others are alone, too")
            before = cut_off
            await self._pause(self._beat_s)
        self._alone.clear()

    # -- when it works and when it does not

    def _worked(self, errand: str) -> None:
        self._failing_since_s.pop(errand, None)

    def _refuse_deafness(self) -> None:
        """Give no sign of life while nothing can be read: others would wait for the deaf."""
        for errand in ("_read_down", "_read_up"):
            since_s = self._failing_since_s.get(errand)
            if since_s is not None and self._clock.monotonic_s() - since_s >= BREAKER_S:
                raise StoreLost(f"messages cannot be read: {self._why.get(errand)}")

    def _failed(self, errand: str, why: str) -> None:
        now_s = self._clock.monotonic_s()
        self._why[errand] = why
        since_s = self._failing_since_s.setdefault(errand, now_s)
        if since_s == now_s:
            self._beat.set()
        elif now_s - since_s >= BREAKER_S:
            self._replica.lost_store(why)
            self._alone.set()
            self._joined.set()

    async def _pause(self, wait_s: float, until: asyncio.Event | None = None) -> None:
        """Wait for a while by the clock in use, or until an event."""
        if self._stopped:
            return
        over = until or asyncio.Event()
        timer = self._clock.call_at(self._clock.monotonic_s() + wait_s, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()


def _complain(what: str) -> None:
    logger.warning("a message cannot be read", extra={"error": what})


def _pieces(messages: Sequence[M], size: Callable[[M], int]) -> Iterator[list[M]]:
    """Cut what there is into pieces of about as much as one message may hold."""
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
