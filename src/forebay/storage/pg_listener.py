"""Notifications of other programs through PostgreSQL (LISTEN, NOTIFY).

A thread of its own holds one connection and sleeps on it. What is sent while it is not connected
is lost, and nobody knows what it was: so `on_connect` is called each time that listening has begun,
for everybody to ask the database. A connection that dies silently is found by TCP's keep-alive;
until then only the wake-ups are missing, and those who wait for them poll now and then anyway.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import SQLAlchemyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.storage.database import Database

logger = logging.getLogger("forebay.storage")

AGAIN_S_FIRST, AGAIN_S_MAX = 0.5, 2.0
"""Between two tries to connect."""
STOP_S = 2.0


class PgListener:
    """Listens on one channel; `start` and `stop` once, after `open` and before `close`."""

    def __init__(
        self,
        database: Database,
        channel: str,
        on_payload: Callable[[str], object],
        on_connect: Callable[[], object],
    ) -> None:
        self._database = database
        self._channel = channel
        self._on_payload = on_payload
        self._on_connect = on_connect
        self._wake, self._woken = socket.socketpair()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="forebay-listen", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, limit_s: float = STOP_S) -> None:
        """End; may be called twice. A database that hangs is not waited for."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._wake.close()
            self._thread.join(limit_s)

    def _run(self) -> None:
        again_s, away = AGAIN_S_FIRST, False
        while not self._stopped.is_set():
            try:
                self._listen()
            except Exception as error:  # the driver's own kinds of errors are many
                if self._stopped.is_set():
                    break
                if not away:
                    logger.warning("not listening for notifications: %s", _first_line(error))
                away = True
            if self._stopped.wait(again_s):
                break
            again_s = min(2 * again_s, AGAIN_S_MAX) if away else AGAIN_S_FIRST
        self._woken.close()

    def _listen(self) -> None:
        """Listen until it is stopped, or until the connection fails."""
        with self._database.connect() as connection:
            connection.exec_driver_sql(f"LISTEN {self._channel}")
            driver: Any = connection.connection.driver_connection
            self._call(self._on_connect)
            try:
                while not self._stopped.is_set():
                    select.select([driver, self._woken], [], [])
                    for note in driver.notifies(timeout=0):
                        self._call(partial(self._on_payload, note.payload))
            finally:
                with contextlib.suppress(Exception):
                    connection.invalidate()  # it must not go back, and hear for nobody

    def _call(self, what: Callable[[], object]) -> None:
        try:
            what()
        except Exception:  # a listener's bug must not end the listening
            logger.exception("handling a notification failed")


def _first_line(error: Exception) -> str:
    cause = getattr(error, "orig", None) if isinstance(error, SQLAlchemyError) else error
    lines = str(cause or error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
