"""What a guard tells its gateways: the one message, which registers and keeps alive alike.

There is no separate registration that could be lost: a gateway that has restarted learns all of
it from the next heartbeat.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct

HEARTBEAT_S: Final = 2.0
"""Between two heartbeats."""
MISSED_MAX: Final = 3
"""Heartbeats in a row that may be missed; then the gateway takes the node out."""
LOST_S: Final = HEARTBEAT_S * MISSED_MAX
NODES_PATH: Final = "/guard/nodes"
"""Where gateways hear of guards."""

GuardState: TypeAlias = Literal["idle", "busy", "loading", "offline", "draining"]
"""`idle`: nothing runs; `busy`: something does; `loading`: the backend says so of itself;
`offline`: the backend does not answer; `draining`: the guard is about to stop."""

Text: TypeAlias = Annotated[str, Meta(max_length=256)]
Bytes: TypeAlias = Annotated[int, Meta(ge=0, le=2**60)]


class Beat(Struct, frozen=True, kw_only=True):
    """One heartbeat. Members that are not known here are left alone: guards may be newer."""

    name: Text
    """The node's name in the gateway."""
    url: Text
    """Where the gateway reaches the guard."""
    instance: Annotated[str, Meta(min_length=8, max_length=64)]
    """Drawn anew whenever a guard starts: tells a restart from two guards of one name."""
    state: GuardState
    slots: Annotated[int, Meta(ge=1, le=10_000)]
    in_flight: Annotated[int, Meta(ge=0, le=10_000)] = 0
    gpu_load: Annotated[float, Meta(ge=0, le=1)] | None = None
    vram_used_bytes: Bytes | None = None
    vram_total_bytes: Bytes | None = None
    kind: Text = ""
    """The kind of the backend; "" while it is not known."""
    version: Text = ""
    """The backend's own version."""
