"""Which task types run now, on which GPU, and which must give way: a pure decision.

A type that runs holds its budget of GPU memory on *one* GPU until its batch ends: two cards of 8 GB
do not take a model of 12. The rules, in the order they apply:

1. A budget of 0 always fits, and so does anything where no GPU is known (no limit).
2. The deepest queue first, so that a loaded model serves as many jobs as possible. But a type that
   has waited `wait_s_max` is *overdue*, and goes before all that are not; among those, the one that
   has waited longest.
3. It is placed by best fit: where the least is left over, which keeps large gaps for large types.
4. A type that is larger than every GPU runs alone rather than never: nothing else that needs
   memory runs beside it, and it starts only when nothing else does.
5. An overdue type that does not fit is promised one GPU: the fewest types whose end makes room
   there *give way*, each after its current job, and no type behind it starts there before it.

The bound: no type starves. With n types and no job longer than L, a type that has work
starts within wait_s_max + n * L, since at most n - 1 are overdue for longer, each of those starts
within L of being first (rule 5), and a type that started is last when it waits again.

Budgets are those of one program. What another one on the same machine uses is memory in use.

Source: "LLM Queue Optimizer" (specification 3) for 1 and 2, which knew neither single GPUs nor
overdue types, so that a busy type could hold its memory for ever. What this does not do: it never
stops a job, and it does not know what a model really uses; `gpu_memory` measures that.

>>> card = Gpu(0, size_gb=8.0)
>>> busy = Active("research", budget_gb=5.0, gpu=0)
>>> plan([Waiting("letter", 9, 2.5, 0.0), Waiting("wizard", 3, 2.5, 0.0)], [busy], [card], 300.0)
Placement(starts=(Start(name='letter', gpu=0),), give_way=frozenset())
>>> plan([Waiting("letter", 9, 5.0, 301.0)], [busy], [card], 300.0)
Placement(starts=(), give_way=frozenset({'research'}))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUNDING_GB = 1e-9
"""Budgets are sums of decimal fractions: 0.1 + 0.2 must fit into 0.3."""


class Gpu(Struct, frozen=True):
    """One GPU, and how much of it may be reserved in all."""

    index: int
    size_gb: float


class Waiting(Struct, frozen=True):
    """A type that has queued jobs and does not run."""

    name: str
    depth: int
    budget_gb: float
    waited_s: float
    """Since it had work and did not run."""


class Active(Struct, frozen=True):
    """A type that runs."""

    name: str
    budget_gb: float
    gpu: int | None
    """Where; None where it needs no memory, or runs alone."""


class Start(Struct, frozen=True):
    """Start a type."""

    name: str
    gpu: int | None


class Placement(Struct, frozen=True):
    """A decision."""

    starts: tuple[Start, ...]
    give_way: frozenset[str]
    """Active types that end their batch after the job they are at."""


def plan(
    waiting: Sequence[Waiting],
    active: Sequence[Active],
    gpus: Sequence[Gpu],
    wait_s_max: float,
) -> Placement:
    """Decide what runs; the order of the arguments does not matter."""
    board = _Board(active, gpus)
    for kind in sorted(waiting, key=lambda kind: _place(kind, wait_s_max)):
        board.consider(kind, overdue=_overdue(kind, wait_s_max))
    return Placement(tuple(board.starts), frozenset(board.give_way))


def _overdue(kind: Waiting, wait_s_max: float) -> bool:
    return kind.waited_s >= wait_s_max


def _place(kind: Waiting, wait_s_max: float) -> tuple[bool, float, float, str]:
    """Return the key that sorts the type first which is considered first."""
    if _overdue(kind, wait_s_max):
        return (False, -kind.waited_s, -kind.depth, kind.name)
    return (True, -kind.depth, -kind.waited_s, kind.name)


class _Board:
    """What is taken while one placement is made."""

    def __init__(self, active: Sequence[Active], gpus: Sequence[Gpu]) -> None:
        self.starts: list[Start] = []
        self.give_way: set[str] = set()
        self._gpus = {gpu.index: gpu.size_gb for gpu in gpus}
        self._busy = [kind for kind in active if kind.budget_gb > 0]
        self._alone = [kind for kind in self._busy if kind.gpu not in self._gpus]
        self._room = dict(self._gpus)
        for kind in self._busy:
            if kind.gpu in self._room:
                self._room[kind.gpu] -= kind.budget_gb
        self._promised: set[int] = set()
        self._closed = False  # nothing more that needs memory starts in this plan

    def consider(self, kind: Waiting, *, overdue: bool) -> None:
        """Start the next type, or have others make room for it, or pass it over."""
        if kind.budget_gb <= 0 or not self._gpus:
            self.starts.append(Start(kind.name, None))
        elif self._closed:
            return
        elif self._alone or self._larger_than_all(kind):
            self._consider_alone(kind, overdue=overdue)
        elif (gpu := self._best_fit(kind)) is not None:
            self.starts.append(Start(kind.name, gpu))
            self._room[gpu] -= kind.budget_gb
        elif overdue:
            self._promise(kind)

    def _larger_than_all(self, kind: Waiting) -> bool:
        return all(kind.budget_gb > size + ROUNDING_GB for size in self._gpus.values())

    def _consider_alone(self, kind: Waiting, *, overdue: bool) -> None:
        if not self._busy and self._room == self._gpus:
            self.starts.append(Start(kind.name, None))
            self._closed = True
        elif overdue:
            leaving = self._alone or self._busy
            self.give_way.update(one.name for one in leaving)
            self._closed = True

    def _best_fit(self, kind: Waiting) -> int | None:
        fitting = [
            (room, index)
            for index, room in self._room.items()
            if index not in self._promised and kind.budget_gb <= room + ROUNDING_GB
        ]
        return min(fitting)[1] if fitting else None

    def _promise(self, kind: Waiting) -> None:
        """Have the fewest give way that must, on one GPU, and keep it for this type."""
        ways = []
        for index in self._gpus:
            leaving = self._leaving(kind, index)
            if leaving is not None and index not in self._promised:
                held_gb = sum(one.budget_gb for one in leaving)
                ways.append((len(leaving), held_gb, index, leaving))
        if ways:
            _, _, index, leaving = min(ways, key=lambda way: way[:3])
            self._promised.add(index)
            self.give_way.update(one.name for one in leaving)

    def _leaving(self, kind: Waiting, index: int) -> list[Active] | None:
        """Return who must leave a GPU so that the type fits; None where that is not enough."""
        room, leaving = self._room[index], []
        there = [one for one in self._busy if one.gpu == index]
        for one in sorted(there, key=lambda one: (-one.budget_gb, one.name)):
            if kind.budget_gb <= room + ROUNDING_GB:
                break
            leaving.append(one)
            room += one.budget_gb
        return leaving if kind.budget_gb <= room + ROUNDING_GB else None
