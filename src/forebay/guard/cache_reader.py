"""Reads how much of its key-value cache a backend has free, for the heartbeats.

A backend that knows reports it in its `GET /health`: `{"kv_free_tokens": 52000}`, the tokens that
could begin now, less what those under way may still need. Most do not; one that has answered
without it is asked again a minute later.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Struct

from forebay.errors import BackendFailed

if TYPE_CHECKING:
    from forebay.clock import Clock
    from forebay.nodes.backend import Backend

HEALTH_PATH: Final = "/health"
LIMIT_S: Final = 1.0
"""How long it may take: the heartbeat waits for it."""
AGAIN_S: Final = 60.0
TOKENS_MAX: Final = 2**40


class _Health(Struct):
    kv_free_tokens: Annotated[int, Meta(ge=0)] | None = None


class CacheReader:
    """The room in the cache of one backend, as it was last read."""

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._again_s = 0.0
        self.free_tokens: int | None = None
        """None where it is not known."""

    async def read(self) -> None:
        """Ask the backend; never raises for anything that it does."""
        if self._backend.told.state != "online" or self._clock.monotonic_s() < self._again_s:
            self.free_tokens = None
            return
        try:
            async with asyncio.timeout(LIMIT_S):
                reply = await self._backend.fetch("GET", HEALTH_PATH)
        except (BackendFailed, TimeoutError):
            self.free_tokens = None
            return
        free = _free_tokens(reply.body)
        self.free_tokens = None if free is None else min(free, TOKENS_MAX)
        if free is None:
            self._again_s = self._clock.monotonic_s() + AGAIN_S


def _free_tokens(body: bytes) -> int | None:
    try:
        return msgspec.json.decode(body, type=_Health).kv_free_tokens
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
