"""Webhooks to the operator's own server when a job or a batch has ended.

The row of a job holds the time when its webhook is due (`webhook_due`) from its submission on; so
the end of the job and the pending delivery are one commit, and a crash loses neither. A failed
delivery is retried with backoff, and given up after `ATTEMPTS`. It may arrive twice (the answer was
lost), under the same `webhook-id`. It contains neither prompts nor results.

Signatures follow the Standard Webhooks specification, which the `openai` SDK checks: HMAC-SHA256
over `id.timestamp.body`, keyed with what follows `whsec_` in base64, or with any other text as it
is.

Off unless `jobs.webhook_url` is set: callers cannot make the gateway call anybody.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
from base64 import b64decode, b64encode
from binascii import Error
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from sqlalchemy import func, select, update

from forebay.errors import BackendFailed, StoreFailed
from forebay.jobs.store.schema import batches, jobs
from forebay.storage.schema import now_s, only
from forebay.wire.fetch import fetch
from forebay.wire.pool import ConnectionPool, Target

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

    from forebay.clock import Timers
    from forebay.jobs.job import Change
    from forebay.jobs.store.job_store import JobStore

logger = logging.getLogger("forebay.webhooks")

LIMIT_S = 10.0
HELD_S = 60.0
"""How long a gateway holds a delivery before another may try it."""
BATCH_MAX = 16
PAUSES_S = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0)
"""Backoff between the attempts: three and a half hours in all."""
ATTEMPTS = len(PAUSES_S) + 1
POLL_S_MAX = 60.0
"""The longest pause between two polls of the store."""
SECRET_PREFIX = "whsec_"

ENDED = {
    "job": (jobs, ("completed", "failed", "cancelled")),
    "batch": (batches, ("completed", "failed", "expired", "cancelled")),
}


class Delivery(Struct, frozen=True):
    """One event to deliver."""

    kind: str
    row_id: int
    attempt: int
    event_id: str
    """The same at every attempt, so that the receiver can deduplicate."""
    event: str
    """`job.completed` and the like."""
    data: dict[str, Any]
    taken: float = 0.0
    """The value of `webhook_due` while it is held; a retry of the job changes it."""


class Webhooks:
    """Delivers what is due. `start` and `stop` once."""

    def __init__(self, store: JobStore, url: str, secret: str | None, clock: Timers) -> None:
        parts = urlsplit(url)
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        port = parts.port or (443 if tls else 80)
        self._pool = ConnectionPool(Target(parts.hostname or "", port, tls, LIMIT_S), idle_max=1)
        query = f"?{parts.query}" if parts.query else ""
        self._head = (
            f"POST {parts.path or '/'}{query} HTTP/1.1\r\nhost: {parts.netloc}\r\n"
            "content-type: application/json\r\nuser-agent: forebay\r\n"
        )
        self._store = store
        self._secret = secret
        self._clock = clock
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop; what is under way is delivered again after the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def wake(self) -> None:
        """Poll the store at once."""
        self._wake.set()

    def take_in(self, changes: list[Change]) -> None:
        """Poll the store if a job has ended here; what others left is found by polling."""
        if any(one.here and one.status not in ("queued", "running") for one in changes):
            self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                due = await asyncio.wrap_future(self._store.database.write(_take_due))
                if due:
                    await asyncio.gather(*map(self._deliver, due))
                    continue
                pause_s = await asyncio.wrap_future(self._store.database.read(_next_due_s))
            except StoreFailed as error:
                logger.warning("reading due webhooks failed: %s", error)
                pause_s = POLL_S_MAX
            await self._rest(POLL_S_MAX if pause_s is None else min(max(pause_s, 0.05), POLL_S_MAX))

    async def _rest(self, seconds: float) -> None:
        timer = self._clock.call_at(self._clock.monotonic_s() + seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def _deliver(self, delivery: Delivery) -> None:
        timestamp = int(self._clock.utc().timestamp())
        body = msgspec.json.encode(
            {
                "id": delivery.event_id,
                "object": "event",
                "type": delivery.event,
                "created_at": timestamp,
                "data": delivery.data,
            }
        )
        head = f"{self._head}webhook-id: {delivery.event_id}\r\nwebhook-timestamp: {timestamp}\r\n"
        if self._secret:
            signature = sign(self._secret, delivery.event_id, timestamp, body)
            head += f"webhook-signature: {signature}\r\n"
        head += f"content-length: {len(body)}\r\n\r\n"
        try:
            answer = await fetch(self._pool, head.encode(), body, limit_s=LIMIT_S, fresh=True)
            wrong = "" if 200 <= answer.status < 300 else f"status {answer.status}"
        except BackendFailed as error:
            wrong = str(error)
        self._note(delivery, wrong)
        await asyncio.wrap_future(
            self._store.database.write(lambda c: _settle(c, delivery, done=not wrong))
        )

    def _note(self, delivery: Delivery, wrong: str) -> None:
        if not wrong:
            return
        given_up = delivery.attempt + 1 >= ATTEMPTS
        logger.warning(
            "webhook delivery failed: %s%s",
            wrong,
            "; given up" if given_up else "",
            extra={"event": delivery.event_id, "attempt": delivery.attempt + 1},
        )


def _take_due(connection: Connection) -> list[Delivery]:
    """Take deliveries that are due, for HELD_S."""
    taken: list[Delivery] = []
    for kind, (table, ended) in ENDED.items():
        c = table.c
        wanted = (
            select(c.id)
            .where(c.webhook_due.is_not(None), c.webhook_due <= now_s(), c.status.in_(ended))
            .order_by(c.webhook_due)
            .limit(BATCH_MAX)
            .with_for_update(skip_locked=True)
        )
        rows = connection.execute(
            update(table)
            .where(only(wanted, c.id))
            .values(webhook_due=now_s() + HELD_S)
            .returning(*c)
        )
        taken += [
            msgspec.structs.replace(_delivery(kind, row._mapping), taken=row.webhook_due)
            for row in rows
        ]
    return taken


def _delivery(kind: str, row: Any) -> Delivery:
    event = f"{kind}.{row['status']}"
    if kind == "batch":
        event_id = f"evt_{row['name']}_{row['status']}"
        return Delivery(kind, row["id"], row["webhook_attempt"], event_id, event,
                        {"id": row["name"], "status": row["status"]})  # fmt: skip
    data = {
        "id": row["id"],
        "type": row["task_type"],
        "job_id": row["job_id"],
        "status": row["status"],
        "model": row["model"] or None,
        "error_code": row["error_code"],
    }
    event_id = f"evt_job_{row['id']}_{row['fence']}"
    return Delivery(kind, row["id"], row["webhook_attempt"], event_id, event, data)


def _settle(connection: Connection, delivery: Delivery, *, done: bool) -> None:
    table: Table = ENDED[delivery.kind][0]
    c = table.c
    given_up = delivery.attempt + 1 >= ATTEMPTS
    if done or given_up:
        values: dict[str, Any] = {"webhook_due": None}
    else:
        values = {"webhook_due": now_s() + PAUSES_S[delivery.attempt]}
    values["webhook_attempt"] = delivery.attempt + 1
    ours = (c.id == delivery.row_id, c.webhook_due == delivery.taken)
    connection.execute(update(table).where(*ours).values(**values))


def _next_due_s(connection: Connection) -> float | None:
    """Return in how many seconds the next delivery is due; None where there is none."""
    soonest = []
    for table, ended in ENDED.values():
        wanted = select(func.min(table.c.webhook_due) - now_s()).where(
            table.c.webhook_due.is_not(None), table.c.status.in_(ended)
        )
        found = connection.execute(wanted).scalar()
        if found is not None:
            soonest.append(float(found))
    return min(soonest, default=None)


def sign(secret: str, event_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature`.

    >>> sign("text", "evt_1", 1700000000, b"{}")
    'v1,PbCEwMnV6qAJkWh+LqdBEFEQEWqD6cV8ZM2ptgh57Wk='
    """
    signed = b"%b.%d.%b" % (event_id.encode(), timestamp, body)
    return "v1," + b64encode(hmac.new(_key(secret), signed, sha256).digest()).decode()


def _key(secret: str) -> bytes:
    if secret.startswith(SECRET_PREFIX):
        try:
            return b64decode(secret[len(SECRET_PREFIX) :], validate=True)
        except Error:
            pass  # a plain text that only begins like one
    return secret.encode()
