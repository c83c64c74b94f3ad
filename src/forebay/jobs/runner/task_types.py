"""The task types that a program has registered: handlers and their budgets."""

from __future__ import annotations

import difflib
import logging
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from forebay.errors import NotAllowed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.jobs.claims import ClaimedJob

logger = logging.getLogger("forebay.jobs")

Handler: TypeAlias = Callable[["Task"], Any]
"""A sync or async function of one argument; what it returns is the result."""
NAME_CHARS_MAX = 200


class TaskCancelled(BaseException):
    """The job is no longer this handler's: cancelled, taken over, or the runner stops.

    Like `asyncio.CancelledError` it is no `Exception`, so that a handler which catches those to
    fall back on another model does not go on with work that nobody waits for.
    """


class Task:
    """One job, as its handler sees it."""

    def __init__(
        self, claimed: ClaimedJob, params: Any, tell_stage: Callable[[ClaimedJob, str], None]
    ) -> None:
        self.id = claimed.job.id
        """The number that `submit` returned."""
        self.task_type = claimed.job.task_type
        """The name under which the handler is registered."""
        self.job_id = claimed.job.job_id
        """The submitter's own number for what the job is about."""
        self.params = params
        """What was submitted, decoded from JSON."""
        self.attempt = claimed.job.attempt
        """1 the first time; more after an interruption."""
        self._claimed = claimed
        self._tell_stage = tell_stage

    @property
    def cancelled(self) -> bool:
        """Whether there is no point in going on; a long sync handler asks now and then."""
        return bool(self._claimed.revoked)

    def stage(self, text: str) -> None:
        """Record how far the job is; raises TaskCancelled when it is no longer this handler's.

        A sync handler waits for the record. An async one does not, lest it hold up the others on
        its loop; so there a lost job is noticed by the next call, or by being cancelled.
        """
        self._check()
        self._tell_stage(self._claimed, text)
        self._check()

    def _check(self) -> None:
        if self._claimed.revoked:
            raise TaskCancelled(f"job {self.id} {self._claimed.revoked}")

    def __repr__(self) -> str:
        return f"Task({self.id}, {self.task_type!r}, attempt={self.attempt})"


class TaskType(Struct, frozen=True):
    """One kind of job."""

    name: str
    handler: Handler
    vram_gb: float | None = None
    """GPU memory reserved while its jobs run; None: not given, counts as 0."""
    llm: bool = True
    """False makes it a bypass type: run at once, outside VRAM budgets, failed on restart."""

    @property
    def budget_gb(self) -> float:
        return 0.0 if self.vram_gb is None else self.vram_gb


class TaskTypes:
    """All of a runner's types. May be used from any thread."""

    def __init__(self, budgets: Mapping[str, float]) -> None:
        for name, budget_gb in budgets.items():
            _check_budget(name, budget_gb)
        self._budgets = dict(budgets)
        self._types: dict[str, TaskType] = {}
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    def add(self, kind: TaskType) -> TaskType:
        """Register a type; a budget of the configuration takes precedence."""
        if not kind.name or len(kind.name) > NAME_CHARS_MAX or not kind.name.isprintable():
            raise NotAllowed(f"{kind.name!r} is not a valid name for a task type")
        if not callable(kind.handler):
            raise NotAllowed(f"the handler of task type {kind.name!r} cannot be called")
        vram_gb = self._budgets.get(kind.name, kind.vram_gb)
        if vram_gb is not None:
            _check_budget(kind.name, vram_gb)
        known = TaskType(kind.name, kind.handler, vram_gb, kind.llm)
        with self._lock:
            if kind.name in self._types:
                raise NotAllowed(f"task type {kind.name!r} is registered already")
            self._types[kind.name] = known
        return known

    def get(self, name: str) -> TaskType:
        """Return a type; raises NotAllowed naming the known types, and the nearest."""
        with self._lock:
            kind = self._types.get(name)
            known = sorted(self._types)
        if kind is not None:
            return kind
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise NotAllowed(f"no task type {name!r}; known are: {', '.join(known) or 'none'}{hint}")

    def all(self) -> dict[str, TaskType]:
        """Return every type by name, in the order of registration."""
        with self._lock:
            return dict(self._types)

    def bypass(self) -> tuple[str, ...]:
        return tuple(name for name, kind in self.all().items() if not kind.llm)

    def warn_of_missing_budgets(self) -> None:
        """Warn once for each type without a budget."""
        for kind in self.all().values():
            if kind.llm and kind.vram_gb is None and kind.name not in self._warned:
                self._warned.add(kind.name)
                logger.warning(
                    "no VRAM budget for task type %r: counts as 0",
                    kind.name,
                    extra={"action": "budget_missing", "task_type": kind.name},
                )


def _check_budget(name: str, budget_gb: float) -> None:
    if not math.isfinite(budget_gb) or budget_gb < 0:
        raise NotAllowed(f"the VRAM budget of task type {name!r} is {budget_gb}: 0 or more, in GB")
