"""The messages between the parent and its workers, one in each frame; msgpack."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct

# -- from a worker to the parent


class Joined(Struct, frozen=True, tag=True):
    """A worker can be reached by the others; sent again whenever its data changes."""

    member: str
    about: bytes
    """What the other workers know of it; the parent only passes it on."""
    may_lead: bool = True


class SteppedDown(Struct, frozen=True, tag=True):
    """A worker is no longer the leader, but alive; the parent elects the next one."""

    epoch: int


class Ready(Struct, frozen=True, tag=True):
    """A worker takes connections from now on."""


class Alive(Struct, frozen=True, tag=True):
    """A heartbeat: the worker's event loop runs."""


class Left(Struct, frozen=True, tag=True):
    """A worker stops, and has no running requests."""


# -- from the parent to a worker


class GroupState(Struct, frozen=True, tag=True):
    """The members and the leader; sent to all at every change."""

    epoch: int = 0
    leader: str = ""
    """Empty while nobody may lead."""
    members: tuple[tuple[str, bytes], ...] = ()
    """Each with its `about`, the one that joined first in front."""


class Accept(Struct, frozen=True, tag=True):
    """The workers whose connections to accept: its own, and those of workers that are gone."""

    workers: tuple[int, ...]


class Reload(Struct, frozen=True, tag=True):
    """Read the settings again."""


class Stop(Struct, frozen=True, tag=True):
    """Let running requests finish, and end."""

    at_once: bool = False
    """Do not wait for running requests."""


FromWorker: TypeAlias = Joined | SteppedDown | Ready | Alive | Left
FromParent: TypeAlias = GroupState | Accept | Reload | Stop

encode = msgspec.msgpack.Encoder().encode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode
decode_from_parent = msgspec.msgpack.Decoder(FromParent).decode
