"""A simulated Valkey: the keys, the three scripts and the streams, and one lossy line to each.

`Keyspace` does what the scripts and stream commands of `forebay.coordination.store.valkey` do, one
call after the other; entries of streams may be gone before they are read, as by trimming. `Valkey`
may be out of reach, forget everything, or fall back to what it was a second ago. A `Line` is what
one replica has of it: calls are delayed, lost on their way or on their way back, and end by the
time limit of the real client. A call that was given up may still be carried out.
"""

from __future__ import annotations

import asyncio
import copy
from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from forebay.coordination.protocol.messages import About, decode_about, encode
from forebay.coordination.store import keys
from forebay.coordination.store.port import Registration, StoreLost, StoreReply, StreamEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from forebay.testing.clock import FakeClock
    from harness.fleet_simulation.clocks import MachineClock, Timer

CALL_S = 0.1
CONNECT_S = 1.0
READ_MAX = 256
"""All three as the real client has them."""
SLOW_S = (0.06, 0.4)
"""What a slow store takes more, there and back alike."""


class Stream:
    """Entries under rising ids."""

    def __init__(self) -> None:
        self.entries: list[tuple[tuple[int, int], bytes]] = []
        self.expires_s = float("inf")
        self._last = (0, 0)

    def append(self, payload: bytes, now_s: float) -> None:
        fresh = (int(now_s * 1000), 0)
        last = self._last
        self._last = fresh if fresh > last else (last[0], last[1] + 1)
        self.entries.append((self._last, payload))
        del self.entries[: -keys.STREAM_MAX]

    def after(self, entry_id: bytes) -> list[StreamEntry]:
        ms, _, number = entry_id.partition(b"-")
        last_read = (int(ms), int(number))
        if last_read >= self._last:  # what is asked most
            return []
        first = bisect_right(self.entries, last_read, key=itemgetter(0))
        some = self.entries[first : first + READ_MAX]
        return [StreamEntry(b"%d-%d" % one, payload) for one, payload in some]


class Keyspace:
    """What the store holds, and what it does in one step."""

    def __init__(self, lease_s: float, drops: Callable[[], bool] = bool) -> None:
        self._lease_s = lease_s
        self._drops = drops
        self._lease: tuple[str, float] | None = None
        self._epoch = 0
        self._members: dict[str, float] = {}
        self._about: dict[str, bytes] = {}
        self._streams: dict[str, Stream] = {}

    def copy(self) -> Keyspace:
        """Return another with the same contents."""
        twin = copy.copy(self)
        twin._members, twin._about = dict(self._members), dict(self._about)
        twin._streams = copy.deepcopy(self._streams)
        return twin

    def heartbeat(self, registration: Registration, now_s: float) -> StoreReply:
        me = registration.about.member
        for gone in [name for name, at_s in self._members.items() if at_s <= now_s - self._lease_s]:
            del self._members[gone], self._about[gone]
        self._members[me], self._about[me] = now_s, encode(registration.about)
        self._keep(keys.down(me), now_s)
        holder = self.holder(now_s)
        if holder and holder != registration.token and holder.endswith(f":{me}"):
            self._lease, holder = None, ""
        if holder and holder == registration.token:
            self._lease = (holder, now_s + self._lease_s)
        elif not holder and registration.may_lead:
            self._epoch = max(self._epoch, registration.epoch) + 1
            holder = f"{self._epoch}:{me}"
            self._lease = (holder, now_s + self._lease_s)
        epoch, _, leader = holder.partition(":")
        left_s = self._lease[1] - now_s if holder and self._lease else 0.0
        members: list[About] = [decode_about(data) for data in self._about.values()]
        return StoreReply(int(epoch or 0), leader, left_s, tuple(members))

    def holder(self, now_s: float) -> str:
        """Return the token that holds the lease; empty when none does."""
        return self._lease[0] if self._lease and now_s < self._lease[1] else ""

    def send_up(self, epoch: int, payloads: Sequence[bytes], now_s: float) -> None:
        for payload in payloads:
            self._append(keys.up(epoch), payload, now_s)

    def send_down(
        self, token: str, payloads: Sequence[tuple[str, bytes]], last: bool, now_s: float
    ) -> bool:
        if not self.is_fenced(token, now_s):
            return False
        for member, payload in payloads:
            self._append(keys.down(member), payload, now_s)
        if last:
            self._lease = None
        return True

    def is_fenced(self, token: str, now_s: float) -> bool:
        """Say whether a token may speak for the fleet."""
        return self.holder(now_s) == token

    def read(self, stream: str, after: bytes, now_s: float) -> list[StreamEntry]:
        found = self._streams.get(stream)
        return [] if found is None or now_s >= found.expires_s else found.after(after)

    def leave(self, member: str) -> None:
        self._members.pop(member, None)
        self._about.pop(member, None)
        self._streams.pop(keys.down(member), None)

    def _append(self, stream: str, payload: bytes, now_s: float) -> None:
        if stream in self._streams and now_s >= self._streams[stream].expires_s:
            del self._streams[stream]
        if not self._drops():
            self._streams.setdefault(stream, Stream()).append(payload, now_s)
        self._keep(stream, now_s)

    def _keep(self, stream: str, now_s: float) -> None:
        if stream in self._streams:
            self._streams[stream].expires_s = now_s + keys.LINGER * self._lease_s


class Call:
    """One call under way."""

    def __init__(
        self, future: asyncio.Future[Any], deliver: Callable[[Callable[[], None]], None]
    ) -> None:
        self.future = future
        self.limit: Timer
        """Of its time."""
        self._deliver = deliver

    def answer(self, result: object) -> None:
        def set_result() -> None:
            if not self.future.done():
                self.future.set_result(result)

        self._deliver(set_result)

    def fail(self, why: str) -> None:
        def set_exception() -> None:
            if not self.future.done():
                self.future.set_exception(StoreLost(why))

        self._deliver(set_exception)


class Reader:
    """One call that waits for entries."""

    def __init__(self, stream: str, after: bytes, reply: Callable[[object], None]) -> None:
        self.stream = stream
        self.after = after
        self.reply = reply


class Valkey:
    """The one store of a fleet."""

    def __init__(self, world: FakeClock, new_keyspace: Callable[[], Keyspace]) -> None:
        self.world = world
        self.keyspace = new_keyspace()
        self._new_keyspace = new_keyspace
        self.calls: dict[Call, None] = {}  # in their order
        self._readers: list[Reader] = []
        self.down = False
        self.paused = False
        self.slow = False
        self._waiting: list[Callable[[], None]] = []
        self._kept: Keyspace | None = None

    def carry_out(self, call: Call, step: Callable[[], None]) -> None:
        """Do a step when the store can."""
        if self.down:
            call.fail("ConnectionError: refused")
        elif self.paused:
            self._waiting.append(step)
        else:
            step()

    def read(self, reader: Reader, wait_s: float) -> None:
        found = self.keyspace.read(reader.stream, reader.after, self.world.monotonic_s())
        if found:
            reader.reply(found)
            return
        self._readers.append(reader)
        self.world.call_at(self.world.monotonic_s() + wait_s, lambda: self._tire(reader))

    def _tire(self, reader: Reader) -> None:
        if reader in self._readers and not self.paused:
            self._readers.remove(reader)
            reader.reply([])

    def serve(self) -> None:
        """Answer the readers that something has come for."""
        for reader in list(self._readers):
            found = self.keyspace.read(reader.stream, reader.after, self.world.monotonic_s())
            if found:
                self._readers.remove(reader)
                reader.reply(found)

    # -- what may happen to it

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        steps, self._waiting = self._waiting, []
        for step in steps:
            step()

    def go_down(self, *, empty: bool) -> None:
        """Stop; every connection breaks. With `empty` everything is forgotten."""
        self.down = True
        self._readers.clear()
        self._waiting.clear()
        if empty:
            self.keyspace = self._new_keyspace()
        calls, self.calls = self.calls, {}
        for call in calls:
            call.fail("ConnectionError: reset")

    def come_up(self) -> None:
        self.down = False

    def keep(self) -> None:
        """Copy everything: to this a failover will go back."""
        self._kept = self.keyspace.copy()

    def fail_over(self) -> None:
        """Lose all that was written since `keep`."""
        self.go_down(empty=False)
        if self._kept is not None:
            self.keyspace, self._kept = self._kept, None


class Line:
    """One replica's connections: a `Store`."""

    def __init__(
        self, valkey: Valkey, clock: MachineClock, random: Random, delay_s: float, loss: float
    ) -> None:
        self._valkey = valkey
        self._world = valkey.world
        self._clock = clock
        self._random = random
        self._delay_s = delay_s
        self._loss = loss
        self.cut = False
        self.heard: Callable[[bytes], None] = lambda _: None
        """Is shown everything that this replica says to a leader."""
        self.members: tuple[str, ...] = ()
        """Those of the last answer to `heartbeat` that came back."""

    async def heartbeat(self, registration: Registration) -> StoreReply:
        reply: StoreReply = await self._call(
            lambda now_s: self._valkey.keyspace.heartbeat(registration, now_s), CALL_S
        )
        self.members = tuple(about.member for about in reply.members)
        return reply

    async def send_up(self, epoch: int, payloads: Sequence[bytes]) -> None:
        for payload in payloads:
            self.heard(payload)
        await self._call(
            lambda now_s: self._valkey.keyspace.send_up(epoch, payloads, now_s), CALL_S
        )

    async def send_down(
        self, token: str, payloads: Sequence[tuple[str, bytes]], *, last: bool = False
    ) -> bool:
        sent: bool = await self._call(
            lambda now_s: self._valkey.keyspace.send_down(token, payloads, last, now_s), CALL_S
        )
        return sent

    async def read_up(self, epoch: int, after: bytes, wait_s: float) -> list[StreamEntry]:
        return await self._read(keys.up(epoch), after, wait_s)

    async def read_down(self, member: str, after: bytes, wait_s: float) -> list[StreamEntry]:
        return await self._read(keys.down(member), after, wait_s)

    async def leave(self, member: str) -> None:
        await self._call(lambda _: self._valkey.keyspace.leave(member), CALL_S)

    async def close(self) -> None:
        pass

    async def _call(self, operation: Callable[[float], object], limit_s: float) -> Any:
        def step() -> None:
            reply = operation(self._world.monotonic_s())
            self._valkey.serve()
            self._reply(call, reply)

        call = self._begin(limit_s)
        self._travel(lambda: self._valkey.carry_out(call, step))
        return await self._end(call)

    async def _read(self, stream: str, after: bytes, wait_s: float) -> list[StreamEntry]:
        def reply(found: object) -> None:
            self._travel(lambda: call.answer(found), lost=lambda: call.fail("reset"))

        reader = Reader(stream, after, reply)
        call = self._begin(wait_s + CONNECT_S)
        self._travel(
            lambda: self._valkey.carry_out(call, lambda: self._valkey.read(reader, wait_s)),
            lost=lambda: call.fail("reset"),
        )
        found: list[StreamEntry] = await self._end(call)
        return found

    def _begin(self, limit_s: float) -> Call:
        call = Call(asyncio.get_running_loop().create_future(), self._clock.deliver)
        self._valkey.calls[call] = None
        due_s = self._clock.monotonic_s() + limit_s
        call.limit = self._clock.call_at(due_s, lambda: call.fail("TimeoutError"))
        return call

    async def _end(self, call: Call) -> Any:
        try:
            return await call.future
        finally:
            call.limit.cancel()
            self._valkey.calls.pop(call, None)

    def _reply(self, call: Call, result: object) -> None:
        self._travel(lambda: call.answer(result))

    def _travel(self, arrive: Callable[[], None], lost: Callable[[], None] | None = None) -> None:
        """Carry something over the network, if it is not cut and nothing gets lost.

        Loss is silence, except where a broken connection is known as such.
        """

        def arrives() -> None:
            if not self.cut:
                arrive()

        if self._loss and self._random.random() < self._loss:
            if lost is None:
                return
            arrive = lost
        delay_s = self._random.expovariate(1 / self._delay_s) if self._delay_s else 0.0
        if self._valkey.slow:
            delay_s += self._random.uniform(*SLOW_S)
        self._world.call_at(self._world.monotonic_s() + delay_s, arrives)
