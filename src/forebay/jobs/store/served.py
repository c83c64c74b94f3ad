"""Which gateway serves a model's jobs, where gateways with other nodes share a database.

A gateway that has no node with a model must not fail its jobs while another one has it, is busy,
or is down for a while. So the one that has it writes that down, and whoever wrote last decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert

from forebay.jobs.store.schema import served_queues
from forebay.storage.schema import now_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

SERVED_S = 86_400.0
"""How long a gateway that had a model is waited for; batches end after a day, too."""


def note_served(connection: Connection, queues: Sequence[str], gateway: str) -> None:
    """Write down that a gateway has the models of queues."""
    c = served_queues.c
    connection.execute(delete(served_queues).where(c.until < now_s()))
    for queue in sorted(queues):  # in one order, so that gateways do not lock each other out
        values = {"gateway": gateway, "until": now_s() + SERVED_S}
        new = insert(served_queues).values(queue=queue, **values)
        connection.execute(new.on_conflict_do_update(index_elements=[c.queue], set_=values))


def is_served(connection: Connection, queue: str, but_by: str) -> bool:
    """Say whether a gateway other than this one was the last to have a queue's model."""
    c = served_queues.c
    wanted = select(c.queue).where(c.queue == queue, c.gateway != but_by, c.until >= now_s())
    return connection.execute(wanted).first() is not None
