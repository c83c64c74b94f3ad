"""A worker's connection to its parent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from forebay.coordination.workers.frames import FrameConnection
from forebay.coordination.workers.messages import (
    Accept,
    Alive,
    GroupState,
    Reload,
    Stop,
    decode_from_parent,
    encode,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from forebay.coordination.workers.messages import FromParent, FromWorker


HEARTBEAT_S: Final = 1.0
"""How often the parent hears that the event loop here runs."""


class ParentLink:
    """Receives the parent's messages and calls the handlers for them; sends it heartbeats."""

    def __init__(self) -> None:
        self.state = GroupState()
        """The workers as the parent told last."""
        self.on_state: Callable[[], None] = lambda: None
        self.on_accept: Callable[[tuple[int, ...]], None] = lambda _: None
        self.on_reload: Callable[[], None] = lambda: None
        self._on_stop: Callable[[bool], None] = lambda _: None
        self._stopped: bool | None = None  # whether to stop at once, once that was said
        self._connection = FrameConnection(self._take, self._lost)
        self._accepting: tuple[int, ...] = ()

    async def connect(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self._connection, sock=sock)
        self._beat()

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    @property
    def accepting(self) -> tuple[int, ...]:
        """The workers whose connections this one accepts."""
        return self._accepting

    def obey(self, on_stop: Callable[[bool], None]) -> None:
        """Have it called with whether to stop at once, and when the parent has died.

        Before this returns, where that was said before.
        """
        self._on_stop = on_stop
        if self._stopped is not None:
            on_stop(self._stopped)

    def tell(self, message: FromWorker) -> None:
        self._connection.send(encode(message))

    def close(self) -> None:
        self._on_stop = lambda _: None
        self._connection.close()

    def _beat(self) -> None:
        self.tell(Alive())
        if self.is_open:
            asyncio.get_running_loop().call_later(HEARTBEAT_S, self._beat)

    def _take(self, _: FrameConnection, frame: bytes) -> None:
        message: FromParent = decode_from_parent(frame)
        match message:
            case GroupState():
                self.state = message
                self.on_state()
            case Accept():
                self._accepting = message.workers
                self.on_accept(message.workers)
            case Reload():
                self.on_reload()
            case Stop():
                self._stop(message.at_once)

    def _lost(self, _: FrameConnection) -> None:
        self._stop(False)

    def _stop(self, at_once: bool) -> None:
        self._stopped = at_once
        self._on_stop(at_once)
