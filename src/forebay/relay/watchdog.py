"""The watchdog: once a second, the leases that the core keeps against the exchanges that are alive.

Every lease comes back on every path: `exchange.py` is written so that it does. This is for the
day on which a bug breaks that promise. A lease that nobody will give back is found after two
looks, said in the log, counted, and given back, so that it costs two seconds of one slot and not
`queue.run_seconds`; an exchange that runs without a lease is ended likewise.

**Alive** is an exchange that something will call again: a connect is under way for it, or a
connection to a node carries its answer. An exchange that is merely remembered is not alive, and
that is what a leak looks like from here.

**Two looks.** Whatever happens to an exchange happens within one callback of the event loop, so
one look should do; two in a row make sure that nothing is ended for a moment's disagreement. Both
sides are known in this process, also where a leader elsewhere decides. Cost: O(what is under way)
once a second, nothing per request.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from forebay.core import Cancelled
from forebay.relay.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from forebay.clock import TimerHandle, Timers
    from forebay.core import Audit, Lease
    from forebay.relay.exchange import Exchange
    from forebay.relay.relay import Relay

logger = logging.getLogger("forebay.relay")

LOOK_S: Final = 1.0
"""How often it looks."""
LOST: Final = Problem("internal_error", "the gateway lost track of this request; the log says more")


class Claim(Struct, frozen=True, gc=False):
    """A request that says it runs."""

    node: str
    alive: bool
    """Whether something will call it again."""


class Orphan(Struct, frozen=True, gc=False):
    """A lease without a live request, or a request that runs without a lease."""

    id: str
    node: str
    leased: bool

    def __str__(self) -> str:
        what = "a lease without a request" if self.leased else "a request without a lease"
        return f"{what}: {self.id} on {self.node}"


def find_orphans(
    leases: Iterable[Lease], claims: Mapping[str, Claim], reserved: Collection[str]
) -> frozenset[Orphan]:
    """Compare what is leased with who claims to run; a reservation may hold a lease and wait.

    >>> from forebay.core import Lease
    >>> leases = [Lease("a", "gpu1"), Lease("b", "gpu1"), Lease("job", "gpu2")]
    >>> claims = {"a": Claim("gpu1", alive=True), "b": Claim("gpu1", alive=False)}
    >>> [str(orphan) for orphan in find_orphans(leases, claims, {"job"})]
    ['a lease without a request: b on gpu1']
    """
    found: list[Orphan] = []
    leased: set[str] = set()
    for lease in leases:
        claim = claims.get(lease.id)
        if claim is not None and claim.node == lease.node:
            leased.add(lease.id)
        if (claim is None or not claim.alive) and lease.id not in reserved:
            found.append(Orphan(lease.id, lease.node, leased=True))
    found += [
        Orphan(name, claim.node, leased=False)
        for name, claim in claims.items()
        if name not in leased
    ]
    return frozenset(found)


def claims_of(exchanges: Mapping[str, Exchange]) -> dict[str, Claim]:
    """Return what each exchange that runs says of itself."""
    return {
        name: Claim(exchange.node, attempt is not None and attempt.is_alive())
        for name, exchange in exchanges.items()
        if exchange.node
        for attempt in (exchange.attempt,)
    }


def connections_in_use(exchanges: Mapping[str, Exchange]) -> int:
    """Return how many of them have a connection to their node."""
    attempts = (exchange.attempt for exchange in exchanges.values())
    return sum(attempt is not None and attempt.connection is not None for attempt in attempts)


class Watchdog:
    """Looks, says what it found, and gives back what nobody else will."""

    def __init__(self, relay: Relay, clock: Timers) -> None:
        self._relay = relay
        self._clock = clock
        self._timer: TimerHandle | None = None
        self._seen: frozenset[Orphan] = frozenset()
        self.orphaned = 0
        """Orphans found since the start; anything but 0 is a bug."""
        self.on_look: Callable[[Audit, Collection[Orphan]], None] | None = None
        """Hears of every look, and of what was found for the second time."""

    def start(self) -> None:
        """Look once a second from now on; may be called twice."""
        if self._timer is None:
            self._arm()

    def stop(self) -> None:
        """Look no more; may be called twice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = self._clock.call_at(self._clock.monotonic_s() + LOOK_S, self._look)

    def _look(self) -> None:
        self._arm()
        relay = self._relay
        audit = relay.audit()
        if audit is None:
            return
        seen = find_orphans(audit.leases, claims_of(relay.exchanges), relay.reservations)
        again = seen & self._seen
        self._seen = seen - again
        for orphan in again:
            self._end(orphan)
        if self.on_look is not None:
            self.on_look(audit, again)

    def _end(self, orphan: Orphan) -> None:
        """Give the slot back, and tell the client where there still is one."""
        logger.error("%s", orphan, extra={"request_id": orphan.id, "node": orphan.node})
        self.orphaned += 1
        exchange = self._relay.exchanges.get(orphan.id)
        try:
            if exchange is not None:
                exchange.abort(LOST)
        except Exception:
            logger.exception("giving back a lost slot failed")
        finally:
            self._relay.exchanges.pop(orphan.id, None)
            self._relay.post(Cancelled(orphan.id))  # harmless where that has been said
