"""What was seen from outside: by the nodes, and by the clients. All times are of one clock."""

from typing import Literal, TypeAlias

from msgspec import Struct

Outcome: TypeAlias = Literal["running", "served", "hung_up"]


class Run(Struct):
    """One request on one node, as the node saw it."""

    id: str
    node: str
    began_s: float
    ended_s: float = float("inf")
    """When the answer was about to be sent, or when the node saw that the caller had gone."""
    outcome: Outcome = "running"


class Asked(Struct):
    """One request of one client, as the client saw it."""

    id: str
    user: str
    priority: str
    via: int
    """The number of the gateway that it was sent to."""
    sent_s: float
    ended_s: float = float("inf")
    status: int = 0
    """What it was answered with; 0 is no answer."""
    code: str = ""
    """The error's code, or why there was no answer."""
    answers: int = 0
    """How many answers came on its connection."""
    foreign: bool = False
    """What came was the answer to another request."""
    left: bool = False
    """The client hung up by itself, so nobody owes it an answer."""


class Missed(Struct, frozen=True):
    """A gateway that did not say that it is alive when it was asked."""

    gateway: int
    """Its number, from 1."""
    asked_s: float
    given_up_s: float


class Window(Struct, frozen=True):
    """A time in which something that is forbidden otherwise may happen, and why."""

    from_s: float
    to_s: float
    why: str = ""


class Journal(Struct):
    """Both sides of one trial."""

    runs: list[Run]
    asked: list[Asked]
    slots: dict[str, int]
    """How many requests each node may run at once."""
    ended_s: float
    """When we stopped watching."""
    missed: list[Missed] = []
    pulses: list[Window] = []
    """From when to when each question for a gateway's health took that was answered."""


def outside(from_s: float, to_s: float, windows: list[Window], spare_s: float = 0.0) -> bool:
    """Tell whether more than `spare_s` in one piece of a stretch of time is in none of the windows.

    >>> outside(0.0, 10.0, [Window(0.0, 4.0), Window(3.0, 10.0)])
    False
    >>> outside(0.0, 10.0, [Window(0.0, 4.0), Window(5.0, 10.0)])
    True
    """
    reached_s = from_s
    for window in sorted(windows, key=lambda one: one.from_s):
        if min(window.from_s, to_s) - reached_s > spare_s:
            return True
        reached_s = max(reached_s, window.to_s)
    return to_s - reached_s > spare_s
