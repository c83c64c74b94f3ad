"""How the workers of one gateway find the slots of a node together.

Each worker answers a part of the requests, and learns too little from them alone. So one decides,
with a `LeadingLimit`; the others have a `FollowedLimit` of each node: it passes on what they see,
in reports, and has the number that the leader has found.

How long a request took can be judged wherever it ran: workers are on one machine, their times of
one clock. How many ran at once is known to no worker alone. So each report says how many run for
its worker and, where streams are compared, how far each of them has come; to the news of one the
leader adds what the others said last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from forebay.core.nodes import is_excused, new_excuses
from forebay.nodes.known_rounds import UNCAPPED
from forebay.nodes.slot_limit import SlotLimit
from forebay.nodes.slot_rounds import Sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.nodes.first_bytes import Silent
    from forebay.nodes.stream_pace import Stream


class Answered(Struct, frozen=True, tag=True, array_like=True, gc=False):
    """A request was answered well, while so many of its worker's ran."""

    sample: Sample
    started_s: float
    ended_s: float
    running: int


class Begun(Struct, frozen=True, tag=True, array_like=True, gc=False):
    """A stream has begun."""

    model: str
    prompt_tokens: int
    first_byte_s: float
    started_s: float
    now_s: float


class Writing(Struct, frozen=True, tag=True, array_like=True):
    """How far all streams of the worker have come that have begun."""

    streams: list[tuple[str, str, float, float]]
    now_s: float
    ended: str
    """The one of them that has just ended, if one has."""


class Waiting(Struct, frozen=True, tag=True, array_like=True):
    """The streams of the worker that have not begun, as another of its requests ends."""

    streams: list[tuple[str, int, float]]
    now_s: float


class Refused(Struct, frozen=True, tag=True, array_like=True, gc=False):
    """The node refused a request as one too many."""

    now_s: float


class TimedOut(Struct, frozen=True, tag=True, array_like=True, gc=False):
    """A request was not answered in time."""

    started_s: float
    now_s: float


class BrokenOff(Struct, frozen=True, tag=True, array_like=True, gc=False):
    """A request was cancelled while the node ran it."""

    now_s: float


News: TypeAlias = Answered | Begun | Writing | Waiting | Refused | TimedOut | BrokenOff


class SlotReport(Struct, frozen=True):
    """What a worker has seen of a node since its last report."""

    node: str
    in_use: int
    """How many requests run there for this worker now."""
    news: list[News] = []


class FoundSlots(Struct, frozen=True):
    """The limit of a node as the leader has found it, and what it needs to be told."""

    slots: int = 1
    reason: str = ""
    is_named: bool = False
    listens: bool = False
    watches: bool = False
    since_s: float = 0.0
    in_use: int = 0
    """How many requests ran there when this was said, for all workers."""
    workers: int = 1


class LeadingLimit(SlotLimit):
    """The limit of a node that this worker finds, for all of them.

    >>> limit = LeadingLimit()
    >>> answered = Answered(Sample("llama", 100, 10, 0.2, 1.0), 0.0, 1.2, running=1)
    >>> limit.take("w1", SlotReport("gpu1", in_use=1, news=[answered, answered]), own=0)
    False
    >>> limit.note(answered.sample, 0.0, 1.2, running=0), limit.slots
    (True, 2)
    """

    def __init__(self, start: int = 1, on_needs: Callable[[], None] = lambda: None) -> None:
        """`on_needs` is called when it needs to be told other things than before."""
        super().__init__(start)
        self._on_needs = on_needs
        self._needs = self.listens, self.watches
        self._broken_off = new_excuses()  # at whichever worker
        self._in_use: dict[str, int] = {}  # requests of the other workers, as each said last
        self._writing: dict[str, list[Stream]] = {}  # by worker, "" is this one
        self._waiting: dict[str, tuple[list[Silent], float]] = {}  # and when that was said

    def is_full(self, in_use: int) -> bool:
        return super().is_full(self.total(in_use))

    def total(self, in_use: int) -> int:
        return in_use + sum(self._in_use.values())

    def note(self, sample: Sample, started_s: float, now_s: float, running: int = UNCAPPED) -> bool:
        changed = super().note(sample, started_s, now_s, self.total(running))
        self._check_needs()
        return changed

    def note_first_byte(
        self, model: str, prompt_tokens: int, first_byte_s: float, started_s: float, now_s: float
    ) -> bool:
        self._begin("", (model, prompt_tokens, started_s))
        return super().note_first_byte(model, prompt_tokens, first_byte_s, started_s, now_s)

    def note_streams(self, streams: list[Stream], now_s: float, ended: str = "") -> bool:
        return self._compare("", streams, now_s, ended)

    def note_silent(self, streams: list[Silent], now_s: float) -> bool:
        return self._look("", streams, now_s)

    def note_refused(self, now_s: float) -> bool:
        """Take a refusal, unless a request broken off just before excuses it."""
        if is_excused(self._broken_off, now_s):
            return False
        return super().note_refused(now_s)

    def note_broken_off(self, now_s: float) -> None:
        """Take a request that was cancelled: the node may not know of it yet, and refuse others."""
        self._broken_off.append(now_s)

    # -- what the other workers see

    def take(self, worker: str, report: SlotReport, own: int) -> bool:
        """Take the news of another worker while so many run here; say if the limit is another."""
        before = self.changes
        self._in_use[worker] = report.in_use
        for name, in_use in (("", own), (worker, report.in_use)):
            if len(streams := self._writing.get(name, [])) > in_use:
                del streams[in_use:]  # so many were cancelled, who knows which
        for news in report.news:
            self._take(worker, news, own)
        self._check_needs()
        return self.changes != before

    def forget(self, worker: str) -> None:
        """Forget what another worker said, which is gone."""
        for known in (self._in_use, self._writing, self._waiting):
            known.pop(worker, None)

    def forget_all(self) -> None:
        """Forget what the other workers said: the node has been put in the place of another."""
        for known in (self._in_use, self._writing, self._waiting):
            known.clear()

    def found(self, own: int, workers: int) -> FoundSlots:
        return FoundSlots(
            self.slots,
            self.reason,
            self.is_named,
            self.listens,
            self.watches,
            self._since_s,
            self.total(own),
            workers,
        )

    def _take(self, worker: str, news: News, own: int) -> None:
        match news:
            case Answered(sample, started_s, ended_s, running):
                others = self.total(own) - self._in_use[worker]
                super().note(sample, started_s, ended_s, running + others)
            case Begun(model, prompt_tokens, first_byte_s, started_s, now_s):
                self._begin(worker, (model, prompt_tokens, started_s))
                super().note_first_byte(model, prompt_tokens, first_byte_s, started_s, now_s)
            case Writing(streams, now_s, ended):
                self._compare(worker, streams, now_s, ended)
            case Waiting(silent, now_s):
                self._look(worker, silent, now_s)
            case Refused(now_s):
                self.note_refused(now_s)
            case TimedOut(started_s, now_s):
                self.note_timed_out(started_s, now_s)
            case BrokenOff(now_s):
                self.note_broken_off(now_s)

    # -- inside

    def _compare(self, worker: str, streams: list[Stream], now_s: float, ended: str) -> bool:
        others = [one for name, some in self._writing.items() if name != worker for one in some]
        self._writing[worker] = [one for one in streams if one[1] != ended]
        if not self.watches:  # any more
            return False
        return super().note_streams([*others, *streams], now_s)

    def _begin(self, worker: str, stream: Silent) -> None:
        """Take a stream out of those that have not begun, where it was one of them."""
        silent, _ = self._waiting.get(worker, ([], 0.0))
        if stream in silent:
            silent.remove(stream)

    def _look(self, worker: str, silent: list[Silent], now_s: float) -> bool:
        """Add what the others said last: what has become of theirs since is not known.

        So each of those counts as late only if it was by then.
        """
        self._waiting[worker] = silent, now_s
        if not self.listens:  # any more
            return False
        every: list[tuple[float, Silent]] = []  # with the time by which they are put in order
        for some, said_s in self._waiting.values():
            for model, prompt_tokens, started_s in some:
                since_s = 0.0 if started_s < self._since_s else now_s - said_s
                every.append((started_s, (model, prompt_tokens, started_s + since_s)))
        return super().note_silent([one for _, one in sorted(every)], now_s)

    def _set(self, slots: int, reason: str, now_s: float, *, in_trial: bool = False) -> bool:
        is_set = super()._set(slots, reason, now_s, in_trial=in_trial)
        if is_set:  # how far streams had come when that was said is no mark for what comes now
            self._writing = {
                worker: [(model, f"{name} before", done, at_s) for model, name, done, at_s in some]
                for worker, some in self._writing.items()
            }
        return is_set

    def _check_needs(self) -> None:
        """Say what is needed from now on; what was said of streams before is old by then."""
        needs = self.listens, self.watches
        if needs != self._needs:
            self._needs = needs
            self._writing, self._waiting = {}, {}
            self._on_needs()


class FollowedLimit:
    """The limit of a node that another worker finds. Methods that take news pass it on."""

    changes = 0
    """The leader counts them, and logs them."""
    in_trial = True

    def __init__(self, pass_on: Callable[[News], None], slots: int = 1) -> None:
        self._pass_on = pass_on
        self._found = FoundSlots(slots)

    @property
    def slots(self) -> int:
        return self._found.slots

    @property
    def reason(self) -> str:
        return self._found.reason

    @property
    def is_named(self) -> bool:
        return self._found.is_named

    @property
    def listens(self) -> bool:
        return self._found.listens

    @property
    def watches(self) -> bool:
        return self._found.watches

    def follow(self, found: FoundSlots) -> bool:
        """Take what the leader has found; say whether the limit is another now."""
        before, self._found = self._found, found
        return (before.slots, before.reason) != (found.slots, found.reason)

    def is_full(self, in_use: int) -> bool:
        """Say yes: the leader judges whether as many run as may."""
        return True

    def total(self, in_use: int) -> int:
        return max(in_use, self._found.in_use)

    def expects_refusal(self, started_s: float) -> bool:
        return self.listens or started_s < self._found.since_s

    def note(self, sample: Sample, started_s: float, now_s: float, running: int = UNCAPPED) -> bool:
        """Pass on a request that was answered, unless clearly fewer ran than may.

        In a search, fewer may show that there is no use in more.
        """
        if self.listens or running * self._found.workers >= self.slots:
            self._pass_on(Answered(sample, started_s, now_s, running))
        return False

    def note_first_byte(
        self, model: str, prompt_tokens: int, first_byte_s: float, started_s: float, now_s: float
    ) -> bool:
        self._pass_on(Begun(model, prompt_tokens, first_byte_s, started_s, now_s))
        return False

    def note_streams(self, streams: list[Stream], now_s: float, ended: str = "") -> bool:
        self._pass_on(Writing(streams, now_s, ended))
        return False

    def note_silent(self, streams: list[Silent], now_s: float) -> bool:
        self._pass_on(Waiting(streams, now_s))
        return False

    def note_refused(self, now_s: float) -> bool:
        """Pass it on; the leader takes one off, unless there is only one."""
        self._pass_on(Refused(now_s))
        return self.slots > 1

    def note_timed_out(self, started_s: float, now_s: float) -> bool:
        self._pass_on(TimedOut(started_s, now_s))
        return False

    def note_broken_off(self, now_s: float) -> None:
        self._pass_on(BrokenOff(now_s))

    def note_waiting(self, waiting: int, now_s: float, in_flight: int = 0) -> bool:
        """Pass nothing on: the leader asks the nodes itself."""
        return False

    def note_ceiling(self, ceiling: int, now_s: float) -> bool:
        """Pass nothing on: the leader asks the nodes itself."""
        return False
