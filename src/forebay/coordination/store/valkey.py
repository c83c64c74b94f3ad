"""The store on a real server: Valkey or Redis, alone or behind Sentinel.

Each call has its own time limit. A new connection has one of its own before the first call on it:
were it part of the call's, a slow store would look well each time that its connections were made
anew, and never be given up. A call that is cancelled or late takes its connection with it
(redis-py closes a connection whose reply was not read), so that no reply can ever reach another
caller. Readers have connections of their own, because they wait on the server's side. Scripts are
sent by their hash and loaded again where the server has forgotten them; they hold no policy, and go
by the store's own clock, so that the replicas' clocks may say what they like.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from redis.asyncio import Redis, Sentinel
from redis.asyncio.connection import Connection, ConnectionPool, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from forebay.coordination.protocol.messages import About, decode_about, encode
from forebay.coordination.store import keys
from forebay.coordination.store.port import Registration, StoreLost, StoreReply, StreamEntry
from forebay.settings import BadStoreUrl, parse_store_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from forebay.settings import StoreAddress

CALL_S = 0.1
"""How long one call may take: a store that is slower than that is as good as gone."""
CONNECT_S = 0.8
"""How long a new connection may take: names, TLS, a password, sentinels that are asked."""
SENTINEL_S = 0.3
"""How long one sentinel may take before the next is asked."""
RAW = {"protocol": 2, "decode_responses": False}
"""Answers as we read them, whatever the URL says: bytes, and streams as lists."""
READ_MAX = 256
"""Entries taken at once; the rest comes with the next call."""

HEARTBEAT = """
-- KEYS lease, epoch, members, about, own stream, stream to the leader
-- ARGV member, token ('' when not leading), lease in ms, highest epoch known, may lead (0, 1),
--      about, linger in ms
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease = tonumber(ARGV[3])
-- First what needs memory: a script that has written something may go on writing in a full store,
-- and a lease that is taken there would be a lease under which nothing can be sent.
redis.call('ZADD', KEYS[3], now, ARGV[1])
redis.call('HSET', KEYS[4], ARGV[1], ARGV[6])
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now - lease)) do
  redis.call('ZREM', KEYS[3], gone)
  redis.call('HDEL', KEYS[4], gone)
end
redis.call('PEXPIRE', KEYS[5], ARGV[7])
redis.call('PEXPIRE', KEYS[6], ARGV[7])
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[2] and string.sub(holder, -#ARGV[1] - 1) == ':' .. ARGV[1] then
  redis.call('DEL', KEYS[1])  -- it led, and has given up meanwhile
  holder = false
end
if holder and holder == ARGV[2] then
  redis.call('PEXPIRE', KEYS[1], lease)
elseif not holder and ARGV[5] == '1' then
  local epoch = math.max(tonumber(redis.call('GET', KEYS[2]) or '0'), tonumber(ARGV[4])) + 1
  holder = string.format('%d:%s', epoch, ARGV[1])
  redis.call('SET', KEYS[2], string.format('%d', epoch))
  redis.call('SET', KEYS[1], holder, 'PX', lease)
end
return {holder or '', redis.call('PTTL', KEYS[1]), redis.call('HVALS', KEYS[4])}
"""

SEND = """
-- KEYS lease, streams...   ARGV token, entries kept, linger in ms, last words (0, 1), payloads...
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
for i = 2, #KEYS do
  redis.call('XADD', KEYS[i], 'MAXLEN', '~', ARGV[2], '*', 'd', ARGV[i + 3])
  redis.call('PEXPIRE', KEYS[i], ARGV[3])
end
if ARGV[4] == '1' then
  redis.call('DEL', KEYS[1])
end
return 1
"""

LEAVE = """
-- KEYS members, about, own stream   ARGV member
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[3])
return 1
"""


def connect(url: str) -> Any:
    """Return a client for a URL in any of its forms; it connects when it is first used.

    Raises BadStoreUrl, which repeats nothing of the URL, for an option that redis-py does not know.
    """
    try:
        client = _client(parse_store_url(url))
        client.connection_pool.make_connection()  # which fails now, not with the first call
    except (TypeError, ValueError):
        raise BadStoreUrl(
            "has an option behind its ? that redis-py does not know or cannot read",
            "leave it out; a ? of a password is written %3F",
        ) from None
    return client


def _client(address: StoreAddress) -> Any:
    limits = {"socket_connect_timeout": CONNECT_S, "retry": Retry(NoBackoff(), 0)}
    # who calls tries again, and knows when to stop
    options: dict[str, Any] = {**limits, **parse_url(address.url), **RAW}
    if not address.service:
        return Redis.from_pool(ConnectionPool(**options))
    own = {"username": address.sentinel_username, "password": address.sentinel_password}
    sentinels = Sentinel(  # type: ignore[no-untyped-call]  # redis-py has types for some
        address.hosts,
        sentinel_kwargs={
            **{name: value for name, value in own.items() if value},
            "socket_timeout": SENTINEL_S,
            "socket_connect_timeout": SENTINEL_S,
        },
    )
    tls = issubclass(options.pop("connection_class", Connection), SSLConnection)
    del options["host"]
    options.pop("port", None)
    return sentinels.master_for(address.service, ssl=tls, **options)


class ValkeyStore:
    """One replica's connections to the store."""

    def __init__(self, url: str, lease_s: float) -> None:
        self._client = connect(url)
        self._readers = (connect(url), connect(url))
        self._lease_ms = max(1, int(lease_s * 1000))
        self._heartbeat = self._client.register_script(HEARTBEAT)
        self._send = self._client.register_script(SEND)
        self._leave = self._client.register_script(LEAVE)
        self._lingers = 0  # the epoch whose stream will not stay for ever; `heartbeat` prolongs it
        self._is_connected = False
        self.calls = 0
        """How many calls were made; what one of them costs is what the benchmarks ask."""
        self.bytes_sent = 0

    async def heartbeat(self, registration: Registration) -> StoreReply:
        member = registration.about.member
        holder, left_ms, abouts = await self._call(
            lambda: self._heartbeat(
                keys=[
                    keys.LEASE, keys.EPOCH, keys.MEMBERS, keys.ABOUT, keys.down(member),
                    keys.up(registration.epoch),
                ],
                args=[
                    member, registration.token, self._lease_ms, registration.epoch,
                    int(registration.may_lead), encode(registration.about),
                    keys.LINGER * self._lease_ms,
                ],
            )
        )  # fmt: skip
        epoch, _, leader = bytes(holder).decode().partition(":")
        members = tuple(about for about in map(_about, abouts) if about is not None)
        return StoreReply(int(epoch or 0), leader, max(0, left_ms) / 1000, members)

    async def send_up(self, epoch: int, payloads: Sequence[bytes]) -> None:
        stream = keys.up(epoch)
        self.bytes_sent += sum(map(len, payloads))
        if len(payloads) == 1 and epoch == self._lingers:  # a pipeline costs nearly twice as much
            await self._call(lambda: self._client.execute_command(*_xadd(stream, payloads[0])))
            return
        pipeline = self._client.pipeline(transaction=False)
        for payload in payloads:
            pipeline.execute_command(*_xadd(stream, payload))
        pipeline.pexpire(stream, keys.LINGER * self._lease_ms)
        await self._call(pipeline.execute)
        self._lingers = epoch

    async def send_down(
        self, token: str, payloads: Sequence[tuple[str, bytes]], *, last: bool = False
    ) -> bool:
        self.bytes_sent += sum(len(payload) for _, payload in payloads)
        linger_ms = keys.LINGER * self._lease_ms
        sent = await self._call(
            lambda: self._send(
                keys=[keys.LEASE, *(keys.down(member) for member, _ in payloads)],
                args=[
                    token, keys.STREAM_MAX, linger_ms, int(last),
                    *(payload for _, payload in payloads),
                ],
            )
        )  # fmt: skip
        return bool(sent)

    async def read_up(self, epoch: int, after: bytes, wait_s: float) -> list[StreamEntry]:
        return await self._read(0, keys.up(epoch), after, wait_s)

    async def read_down(self, member: str, after: bytes, wait_s: float) -> list[StreamEntry]:
        return await self._read(1, keys.down(member), after, wait_s)

    async def _read(
        self, reader: int, stream: str, after: bytes, wait_s: float
    ) -> list[StreamEntry]:
        asked = self._readers[reader].xread(
            {stream: after}, count=READ_MAX, block=max(1, int(wait_s * 1000))
        )
        self.calls += 1
        with _failures():
            async with asyncio.timeout(wait_s + CONNECT_S):
                found = await asked
        if not found:
            return []
        [(_, entries)] = found
        return [StreamEntry(entry_id, fields.get(b"d", b"")) for entry_id, fields in entries]

    async def leave(self, member: str) -> None:
        await self._call(
            lambda: self._leave(keys=[keys.MEMBERS, keys.ABOUT, keys.down(member)], args=[member])
        )

    async def close(self) -> None:
        for client in (self._client, *self._readers):
            await client.aclose()
            sentinels = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
            for sentinel in getattr(sentinels, "sentinels", ()):
                await sentinel.aclose()

    async def _call(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call; after a failure only when there is a connection again."""
        self.calls += 1
        try:
            with _failures():
                if not self._is_connected:
                    async with asyncio.timeout(CONNECT_S):  # to where our keys are, in a cluster
                        await self._client.exists(keys.LEASE)
                async with asyncio.timeout(CALL_S):
                    answer = await call()
        except StoreLost:
            self._is_connected = False
            raise
        self._is_connected = True
        return answer


@contextmanager
def _failures() -> Iterator[None]:
    """Raise StoreLost for whatever goes wrong: also what the driver says to options of the URL."""
    try:
        yield
    except Exception as error:
        raise StoreLost(f"{type(error).__name__}: {error}") from error


def _xadd(stream: str, payload: bytes) -> tuple[str | bytes | int, ...]:
    return ("XADD", stream, "MAXLEN", "~", keys.STREAM_MAX, "*", "d", payload)


def _about(data: bytes) -> About | None:
    """Return who a member is; None for what another version wrote."""
    try:
        return decode_about(data)
    except msgspec.MsgspecError:
        return None
