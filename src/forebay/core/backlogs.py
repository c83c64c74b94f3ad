"""Forecast when a queue's virtual clock reaches a tag, given the arrivals of other users.

**Theory.** An entry starts when all has been served whose start tag is lower: the x that is there
already, and what comes meanwhile. Take service as a fluid: user i has b_i waiting, adds a_i per
second and, with weight w_i, can use at most w_i * d before the clock V has come the distance d from
here to the entry's tag. With the capacity C, in the same unit of cost, the entry starts at the time
t for which

    C * t = x + sum over the others of min(a_i * t, max(0, w_i * d - b_i))

"Those ahead if nothing more arrived" is the same with a_i = 0, and far too little where a heavy
user waits and a hundred light ones pass; `d / speed of V` is the same with everybody always
backlogged, and far too much where the others' backlogs are about to end.

**Who comes.** What a user has added lately goes with the user, from one backlog to the next. Who
has filled up a long backlog adds nothing that matters to a short one; counted by the backlog that
it met, it would be expected of everybody. It is counted while someone waits, when more comes than
usual: only as much in all is expected as came in the last minutes, waiting or not.

**Bound.** Users are not looked at one by one: those whose backlog is of the same octave share a
cell, and the sum goes over cells, of which there are as many as octaves: O(1) to join and to
leave, O(log of the largest backlog) to ask. Who has nothing waiting has a cell of his own.

The right side is concave in t, so Newton's steps from above come down to the solution, two or
three of them. Where arrivals alone exceed the capacity there is none, and the bound stands that
the caller gives.
"""

from __future__ import annotations

from math import exp, frexp, ldexp
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from forebay.core.records import Account

MEMORY_S: Final = 300.0
"""Arrivals are forgotten with this time constant: longer than a burst, shorter than a tide."""
RESCALE: Final = 20.0
"""New arrivals weigh e^(age / MEMORY_S) instead of all old ones less; up to this exponent."""
STEPS: Final = 4
CLOSE: Final = 0.95
"""A step that changes less than this is the last."""
SATURATED: Final = 0.98
"""Arrivals of more than this share of the capacity are taken to have no end."""
KNOWN_MIN: Final = 0.05
"""The first arrivals count as those of a twentieth of the memory: a rate needs some time."""


class Cell:
    """Users whose backlogs are of the same octave."""

    __slots__ = ("came", "least", "most", "owed", "users", "weight")

    def __init__(self, octave: int = 0) -> None:
        self.least = ldexp(0.5, octave)  # what each of them has waiting, over its weight
        self.most = ldexp(1.0, octave)
        self.users = 0
        self.owed = 0.0  # the cost of all that they have waiting
        self.weight = 0.0  # of all of them
        self.came = 0.0  # the cost of what they added lately, weighed by time


class Backlogs:
    """The users of a queue that have something waiting, by how much."""

    __slots__ = ("_began_s", "_cells", "_idle", "_origin_s", "_others", "owed")

    def __init__(self) -> None:
        self._cells: dict[int, Cell] = {}
        self._idle = Cell()  # of users with nothing waiting; only its arrivals count
        self._others: dict[str, tuple[float, float]] = {}  # what came of users without an account
        self.owed = 0.0  # the cost of all that waits
        self._origin_s = 0.0  # the busy time at which an arrival weighs 1
        self._began_s = -1.0

    def join(self, account: Account, cost: float, busy_s: float) -> None:
        """Add an entry of a user; `busy_s` is the time in which someone waited."""
        age = (busy_s - self._origin_s) / MEMORY_S
        if age > RESCALE:
            self._rescale(busy_s, age)
            age = 0.0
        if self._began_s < 0.0:
            self._began_s = busy_s
        cell, owed = account.cell, account.owed + cost
        came = cost * exp(age)
        (cell or self._idle).came += came
        account.came = self._came(account) + came
        if cell is not None and owed < cell.most * account.weight:
            account.owed = owed
            cell.owed += cost
            self.owed += cost
        else:
            self.change(account, owed)

    def leave(self, account: Account, cost: float) -> None:
        """Take an entry of a user out, after `live` has been counted down."""
        cell, owed = account.cell, account.owed - cost
        if cell is not None and account.live and owed >= cell.least * account.weight:
            account.owed = owed
            cell.owed -= cost
            self.owed -= cost
        else:
            self.change(account, owed if account.live else 0.0)

    def change(self, account: Account, owed: float) -> None:
        """Set the cost of what a user has waiting, and put it into its cell; none at all is 0."""
        cell, before, came = account.cell, account.owed, self._came(account)
        account.owed = owed
        self.owed += owed - before
        (cell or self._idle).came -= came
        if cell is not None:
            cell.users -= 1
            if cell.users:
                cell.owed -= before
                cell.weight -= account.weight
            else:  # no sum of many differences is exactly zero
                cell.owed = cell.weight = cell.came = 0.0
        if owed <= 0.0:
            account.cell = None
            self._idle.came += came
            return
        octave = frexp(owed / account.weight)[1]
        cell = self._cells.get(octave)
        if cell is None:
            cell = self._cells[octave] = Cell(octave)
        cell.users += 1
        cell.owed += owed
        cell.weight += account.weight
        cell.came += came
        account.cell = cell

    def remember(self, name: str, account: Account, users_max: int) -> None:
        """Keep what came of a user whose account is given up; the longest kept are forgotten."""
        self._others[name] = account.came, account.origin_s
        while len(self._others) > users_max:
            del self._others[next(iter(self._others))]

    def recall(self, name: str, account: Account) -> None:
        """Give a new account what came of its user before."""
        if name in self._others:
            account.came, account.origin_s = self._others.pop(name)

    def _came(self, account: Account) -> float:
        """Return what a user has added lately, weighed as that of all others is."""
        if account.origin_s != self._origin_s:
            account.came *= exp((account.origin_s - self._origin_s) / MEMORY_S)
            account.origin_s = self._origin_s
        return account.came

    def entries_before(self, distance: float, mine: Account | None, waiting: int) -> int:
        """Return about how many entries of others have a tag up to that distance from the clock.

        Each of the `waiting` entries is taken to cost the same.
        """
        each = self.owed / waiting
        before = 0.0
        for cell in self._cells.values():
            users, owed, weight = cell.users, cell.owed, cell.weight
            if mine is not None and cell is mine.cell:
                users -= 1
                owed -= mine.owed
                weight -= mine.weight
            if users:
                most = weight * distance + users * each  # one tag of each is at the clock
                before += owed if owed < most else most
        return round(before / each)

    def per_s(self, busy_s: float, usual: float) -> float:
        """Return what weighed arrivals are in a second; in all, at most the `usual` cost."""
        age = (busy_s - self._origin_s) / MEMORY_S
        known = 1.0 - exp((self._began_s - busy_s) / MEMORY_S)
        per_s = exp(-age) / (MEMORY_S * max(known, KNOWN_MIN))
        came = self._idle.came
        for cell in self._cells.values():
            came += cell.came
        return per_s if came * per_s <= usual or usual <= 0.0 else usual / came

    def reach_s(
        self,
        distance: float,
        ahead: float,
        account: Account,
        capacity: float,
        most_s: float,
        per_s: float,
    ) -> float:
        """Return when the clock will have come that distance, at most `most_s`.

        `ahead` is what would be served before if nothing more came to the others of the user whose
        `account` it is; `capacity` is the cost that is served in a second.
        """
        mine = account.cell
        flows: list[tuple[float, float]] = []  # the most that may yet come before, what comes
        for cell in self._cells.values():
            owed, weight, came = cell.owed, cell.weight, cell.came
            if cell is mine:
                owed -= account.owed
                weight -= account.weight
                came -= self._came(account)
            room = weight * distance - owed
            if room > 0.0 and came > 0.0:
                flows.append((room, came * per_s))
        return _serve(flows, ahead, self._idle.came * per_s, capacity, most_s)

    def _rescale(self, busy_s: float, age: float) -> None:
        factor = exp(-age)
        for cell in (self._idle, *self._cells.values()):
            cell.came *= factor
        self._origin_s = busy_s


def _serve(
    flows: list[tuple[float, float]], ahead: float, idle: float, capacity: float, most_s: float
) -> float:
    """Return the solution of the equation above, coming down from `most_s`."""
    at_s = most_s
    for _ in range(STEPS):
        served, arriving = ahead, idle
        for room, rate in flows:
            if rate * at_s < room:
                arriving += rate
            else:
                served += room
        if arriving >= SATURATED * capacity:
            return at_s
        next_s = served / (capacity - arriving)
        if next_s >= CLOSE * at_s:
            return min(next_s, at_s)
        at_s = next_s
    return at_s
