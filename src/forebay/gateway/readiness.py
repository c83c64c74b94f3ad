"""Whether this gateway accepts requests: what `/ready` says, and what a drain changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.gateway.errors.http_error import shutting_down
from forebay.relay.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.coordination import Fleet
    from forebay.nodes.registry import Nodes

CUT_OFF = (
    "this gateway cannot reach the shared store, but others may: it starts nothing new until it "
    "can; send requests to another gateway"
)


class Readiness:
    """Knows whether requests should be sent here."""

    def __init__(self, nodes: Nodes, fleet: Callable[[], Fleet | None]) -> None:
        self._nodes = nodes
        self._fleet = fleet
        self.draining = False
        """Whether the gateway is shutting down: what runs may finish, nothing new is accepted."""

    def check_not_draining(self) -> None:
        """Raise HttpError while the gateway shuts down."""
        if self.draining:
            raise shutting_down()

    def problem(self) -> Problem | None:
        """Return why no requests should be sent here; None where they should."""
        nodes, fleet = self._nodes, self._fleet()
        if self.draining:
            return shutting_down().problem
        if nodes.expecting:
            return Problem("model_loading", "a node is still being looked for or started")
        if unasked := nodes.unasked():
            return Problem("no_node", f"not probed yet: {', '.join(unasked)}")
        if not nodes.any_up():
            states = {backend.told.state for backend in nodes}
            words = "every node is draining" if states == {"draining"} else "no node is up"
            return Problem("no_node", words)
        if fleet is not None and fleet.picture().mode == "cut_off":
            return Problem("coordination_lost", CUT_OFF)
        return None
