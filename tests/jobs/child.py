"""A program of its own that submits and runs jobs, to be killed at any moment.

    child.py URL LOG work     submits jobs without end, and runs them; says which it accepted
    child.py URL LOG drain    runs what there is, then ends
    child.py URL LOG pair     the same, but is held at its first job until it is written to
    child.py URL LOG hold     runs one job that never ends
    child.py URL LOG suicide  runs a job that ends the program

Its log has a line for each job that began, and for each whose result was recorded.
"""

from __future__ import annotations

import os
import sys
import threading
from itertools import count
from typing import TYPE_CHECKING

from forebay.jobs import Task, TaskRunner

if TYPE_CHECKING:
    from forebay.jobs.job import Change

TYPES = ("letter", "report")
LIMIT_S = 60.0


class Child:
    """The handler and its log."""

    def __init__(self, log: str, mode: str) -> None:
        self.mode = mode
        self.file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.first = True

    def note(self, *words: object) -> None:
        os.write(self.file, (" ".join(str(word) for word in words) + "\n").encode())

    def handle(self, task: Task) -> str:
        token = f"{os.getpid()}-{task.id}-{task.attempt}"
        self.note("began", task.task_type, task.id, token)
        if self.mode == "hold":
            say("holding")
            threading.Event().wait()
        elif self.mode == "pair" and self.first:
            self.first = False
            say("holding")
            os.read(0, 1)
        elif self.mode == "suicide":
            os._exit(9)
        return token

    def hear(self, change: Change) -> None:
        if change.status == "completed":
            self.note("recorded", change.task_type, change.id)


def main(url: str, log: str, mode: str) -> None:
    """Do what the mode says."""
    child = Child(log, mode)
    size_gb = 16.0 if mode == "pair" else 8.0  # two on one machine share it
    runner = TaskRunner(url, on_interrupt="retry", attempts=3 if mode == "suicide" else 1000,
                        poll_seconds=0.05, available_vram_gb=size_gb, max_queue_depth=100_000,
                        lease_seconds=60.0)  # fmt: skip
    for name in TYPES:
        runner.task(name, vram_gb=5.0)(child.handle)
    runner._store.changes.listeners.append(child.hear)
    runner.start()
    if mode == "work":
        for number in count():
            job_id, _ = runner.submit(TYPES[number % 2], {"n": number, "by": os.getpid()})
            say(f"accepted {job_id}")
    elif mode in ("drain", "pair"):
        sys.exit(0 if runner.wait_idle(LIMIT_S) else 1)
    else:
        threading.Event().wait()


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
