"""Durable jobs, model by model: the library and what the gateway builds on it.

What is offered here is imported when it is first asked for: the database's library takes a while,
and not everyone who imports a module from here runs jobs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.jobs.runner import TaskRunner
    from forebay.jobs.singleton import get_runner, reset_runner
    from forebay.jobs.task import Task, TaskCancelled

__all__ = ["Task", "TaskCancelled", "TaskRunner", "get_runner", "reset_runner"]

_HOMES = {
    "Task": "task",
    "TaskCancelled": "task",
    "TaskRunner": "runner",
    "get_runner": "singleton",
    "reset_runner": "singleton",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
