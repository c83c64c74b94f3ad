"""The parent's side of the workers' connections: it keeps and sends the membership."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from forebay.coordination.workers.election import Election
from forebay.coordination.workers.frames import FrameConnection
from forebay.coordination.workers.messages import (
    Joined,
    Left,
    SteppedDown,
    decode_from_worker,
    encode,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from forebay.coordination.workers.messages import FromParent, FromWorker, GroupState


class WorkerGroup:
    """The workers that are connected."""

    def __init__(self) -> None:
        self._election = Election()
        self._connections: set[FrameConnection] = set()
        self._told = self._election.state()

    async def connect(
        self, sock: socket.socket, on_message: Callable[[FromWorker], None]
    ) -> WorkerConnection:
        """Take the parent's end of a worker's socket; `on_message` hears what is not for here."""

        def on_frame(connection: FrameConnection, frame: bytes) -> None:
            try:
                message = decode_from_worker(frame)
            except msgspec.MsgspecError:  # a worker that has gone mad is as good as dead
                connection.abort()
                return
            if not self._take(connection, message):
                on_message(message)

        connection = FrameConnection(on_frame, self._lost)
        await asyncio.get_running_loop().create_unix_connection(lambda: connection, sock=sock)
        self._connections.add(connection)
        return WorkerConnection(connection)

    def end_elections(self) -> None:
        """Choose nobody any more: all are about to stop."""
        self._election.is_over = True

    def close(self) -> None:
        for connection in list(self._connections):
            connection.close()

    @property
    def state(self) -> GroupState:
        return self._told

    def _take(self, connection: FrameConnection, message: FromWorker) -> bool:
        match message:
            case Joined():
                connection.peer = message.member
                self._election.join(message.member, message.about, may_lead=message.may_lead)
            case SteppedDown():
                self._election.step_down(connection.peer, message.epoch)
            case Left():
                self._election.leave(connection.peer)
            case _:
                return False
        self._tell_changes()
        return True

    def _lost(self, connection: FrameConnection) -> None:
        """Take the end of a connection for the death of its worker: there is no other reason."""
        self._connections.discard(connection)
        self._election.leave(connection.peer)
        self._tell_changes()

    def _tell_changes(self) -> None:
        state = self._election.state()
        if state != self._told:
            self._told = state
            told = encode(state)
            for connection in self._connections:
                connection.send(told)


class WorkerConnection:
    """The parent's connection to one worker."""

    def __init__(self, connection: FrameConnection) -> None:
        self._connection = connection

    def tell(self, message: FromParent) -> None:
        self._connection.send(encode(message))

    def close(self) -> None:
        self._connection.abort()
