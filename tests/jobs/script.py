"""A runner with handlers that tests hold in their hands."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.jobs import Task, TaskRunner
    from forebay.jobs.job import StoredJob

LIMIT_S = 30.0
"""For waits that end at once when all is well."""


class Script:
    """Handlers that note what they run; a type that is held waits for its gate at each job."""

    def __init__(self, runner: TaskRunner) -> None:
        self.runner = runner
        self.ran: list[Any] = []
        self.began: dict[str, threading.Semaphore] = {}
        self.gates: dict[str, threading.Semaphore] = {}

    def add(self, name: str, *, held: bool = False, **options: Any) -> None:
        self.began[name] = threading.Semaphore(0)
        self.gates[name] = threading.Semaphore(0)

        def handler(task: Task) -> Any:
            self.ran.append((name, task.params))
            self.began[name].release()
            if held:
                assert self.gates[name].acquire(timeout=LIMIT_S)
            return task.params

        self.runner.task(name, **options)(handler)

    def submit(self, name: str, *params: Any) -> list[int]:
        return [self.runner.submit(name, one)[0] for one in params]

    def begun(self, name: str) -> None:
        """Wait until one more job of a type has begun."""
        assert self.began[name].acquire(timeout=LIMIT_S)

    def has_begun(self, name: str) -> bool:
        return self.began[name].acquire(blocking=False)

    def let(self, name: str, jobs: int = 1) -> None:
        """Let jobs of a held type end."""
        self.gates[name].release(jobs)

    def end(self) -> None:
        """Let everything end."""
        for gate in self.gates.values():
            gate.release(10_000)


def idle(runner: TaskRunner) -> None:
    assert runner.wait_idle(LIMIT_S)


def job(runner: TaskRunner, job_id: int) -> StoredJob:
    found = runner.get(job_id)
    assert found is not None
    return found
