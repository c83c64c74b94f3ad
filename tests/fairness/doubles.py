"""Schedulers that make the known mistakes on purpose: controls that the assertions must catch."""

from collections.abc import Sequence
from typing import Literal

from forebay.core.actions import Action, Route, Wait
from forebay.core.events import Arrived, Event, Finished, NodeChanged


class LeastServedFirst:
    """Picks the user with the least service ever, on one node, without the one careful rule.

    `lift="never"` lets an idle user bank credit; `lift="to_maximum"` makes a newcomer wait until
    everyone else has caught up with the one who was served most.
    """

    def __init__(self, lift: Literal["never", "to_maximum"]) -> None:
        self._lift = lift
        self._free = 0
        self._node = ""
        self._served: dict[str, float] = {}
        self._waiting: dict[str, Arrived] = {}
        self._running: dict[str, Arrived] = {}

    def next_deadline_s(self) -> float | None:
        return None

    def handle(self, event: Event, now_s: float) -> Sequence[Action]:
        match event:
            case NodeChanged():
                self._node, self._free = event.name, event.slots
            case Arrived():
                known = any(one.user == event.user for one in self._waiting.values())
                if self._lift == "to_maximum" and not known and event.user not in self._served:
                    self._served[event.user] = max(self._served.values(), default=0.0)
                self._waiting[event.id] = event
            case Finished():
                cost = event.prompt_tokens + 2.0 * event.output_tokens
                self._served[self._running.pop(event.id).user] += cost
                self._free += 1
            case _:
                pass
        actions = self._dispatch()
        if isinstance(event, Arrived) and event.id in self._waiting:
            actions.append(Wait(event.id, "busy", 1))
        return actions

    def _dispatch(self) -> list[Action]:
        actions: list[Action] = []
        while self._free and self._waiting:
            chosen = min(self._waiting.values(), key=lambda one: self._served.get(one.user, 0.0))
            self._running[chosen.id] = self._waiting.pop(chosen.id)
            self._served.setdefault(chosen.user, 0.0)
            self._free -= 1
            actions.append(Route(chosen.id, self._node))
        return actions
