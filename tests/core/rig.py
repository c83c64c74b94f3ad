"""A scheduler on a short lead: say what happens, read what it decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from forebay.core import (
    Arrived,
    Cancelled,
    Describe,
    Finished,
    Inspected,
    NodeChanged,
    NodeRemoved,
    NodeRested,
    Observed,
    Options,
    Reject,
    Returned,
    Route,
    Scheduler,
    Snapshot,
    Ticked,
    Wait,
)

if TYPE_CHECKING:
    from typing import Self

    from forebay.core import Action, Event

A = TypeVar("A")


class Rig:
    """Holds the clock and a list of everything that was routed, in order."""

    def __init__(self, **options: Any) -> None:
        self.core = Scheduler(Options(**options))
        self.now_s = 0.0
        self.routed: list[Route] = []

    @classmethod
    def busy(cls, **options: Any) -> Self:
        """Return one with a node of one slot, which `z` of another user holds."""
        rig = cls(**options)
        rig.node()
        rig.start("z")
        return rig

    def give(self, event: Event, *, at_s: float | None = None) -> list[Action]:
        if at_s is not None:
            self.now_s = at_s
        actions = list(self.core.handle(event, self.now_s))
        self.routed += [action for action in actions if isinstance(action, Route)]
        return actions

    def node(self, name: str = "n", slots: int = 1, *models: str, **more: Any) -> list[Action]:
        return self.give(NodeChanged(name, slots, models or ("m",), **more))

    def give_arrival(self, name: str, model: str = "m", **more: Any) -> list[Action]:
        """Post an arrival; its user is the first letter of its name unless given."""
        more.setdefault("user", name[0])
        return self.give(Arrived(name, model, **more))

    def give_removal(self, name: str) -> list[Action]:
        return self.give(NodeRemoved(name))

    def give_rest(self, name: str, rest_s: float) -> list[Action]:
        return self.give(NodeRested(name, rest_s))

    def arrive(self, name: str, model: str = "m", **more: Any) -> Route | Wait | Reject:
        """Post an arrival and return the answer to it."""
        actions = self.give_arrival(name, model, **more)
        mine = [a for a in actions if isinstance(a, Route | Wait | Reject) and a.id == name]
        assert mine, f"{name} was not answered: {actions}"
        return mine[0]

    def wait(self, name: str, model: str = "m", **more: Any) -> Wait:
        return self.only(Wait, [self.arrive(name, model, **more)])

    def start(self, name: str, model: str = "m", **more: Any) -> Route:
        return self.only(Route, [self.arrive(name, model, **more)])

    def refuse(self, name: str, model: str = "m", **more: Any) -> Reject:
        return self.only(Reject, [self.arrive(name, model, **more)])

    def finish(self, name: str, *, after_s: float = 0.0, **more: Any) -> list[str]:
        """End a run and return the ids of what starts in its place."""
        self.now_s += after_s
        return self.started(self.give_end(name, **more))

    def give_end(self, name: str, **more: Any) -> list[Action]:
        return self.give(Finished(name, **more))

    def come_back(self, name: str, *, exclude: bool = True) -> list[Action]:
        return self.give(Returned(name, exclude))

    def cancel(self, name: str) -> list[Action]:
        return self.give(Cancelled(name))

    def tick(self, at_s: float) -> list[Action]:
        return self.give(Ticked(), at_s=at_s)

    def look(self) -> Snapshot:
        return self.only(Snapshot, self.give(Observed()))

    def give_inspection(self, name: str) -> list[Action]:
        return self.give(Inspected(name))

    def describe(self, name: str) -> Describe:
        return self.only(Describe, self.give_inspection(name))

    def run_dry(self, *running: str) -> list[str]:
        """Finish what runs, oldest first, until nothing starts any more; return what started."""
        line, order = list(running), []
        while line:
            started = self.finish(line.pop(0), after_s=1.0)
            order += started
            line += started
        return order

    @staticmethod
    def started(actions: list[Action]) -> list[str]:
        return [action.id for action in actions if isinstance(action, Route)]

    @staticmethod
    def only(kind: type[A], actions: list[Any]) -> A:
        found = [action for action in actions if isinstance(action, kind)]
        assert len(found) == 1, f"one {kind.__name__} expected in {actions}"
        return found[0]
