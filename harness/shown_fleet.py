"""A fleet that is as it is told to be: for what shows one, without a store and other gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from forebay.coordination import FleetPicture, ReplicaView

if TYPE_CHECKING:
    from collections.abc import Callable

ME = "1a2b3c4d"


def replica(name: str, **changed: Any) -> ReplicaView:
    """Return a gateway that is well."""
    view = ReplicaView(
        name, f"http://10.0.0.{name[0]}:7800", "following", "0.6.0", "same", 1, 2, 1, 0.2
    )
    return replace(view, **changed)


class ShownFleet:
    """A `Fleet`: `shown` is its picture, `told` what was said to all."""

    def __init__(self, *others: ReplicaView, **changed: Any) -> None:
        here = replica(ME, state="leading", waiting=3)
        self.shown = replace(FleetPicture("coordinated", 7, ME, (here, *others)), **changed)
        self.broadcasts: list[tuple[str, bytes]] = []
        self.on_broadcast: Callable[[str, bytes], None] = lambda topic, payload: None

    @property
    def me(self) -> str:
        return self.shown.me

    def picture(self) -> FleetPicture:
        return self.shown

    def change(self, **changed: Any) -> None:
        """Be otherwise from now on."""
        self.shown = replace(self.shown, **changed)

    def address_of(self, name: str) -> str | None:
        known = {one.name: one.address for one in self.shown.replicas if one.name != self.me}
        return known.get(name)

    def broadcast(self, topic: str, payload: bytes) -> None:
        self.broadcasts.append((topic, payload))

    async def owner_of(self, ticket_id: str) -> str | None:
        return None
