"""Durable jobs, model by model: the library and what the gateway builds on it.

What is offered here is imported when it is first asked for: the database's library takes a while,
and not everyone who imports a module from here runs jobs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.jobs.runner.runner import TaskRunner
    from forebay.jobs.runner.singleton import get_runner, reset_runner
    from forebay.jobs.runner.task_types import Task, TaskCancelled

__all__ = ["Task", "TaskCancelled", "TaskRunner", "get_runner", "reset_runner"]

_HOMES = {
    "Task": "runner.task_types",
    "TaskCancelled": "runner.task_types",
    "TaskRunner": "runner.runner",
    "get_runner": "runner.singleton",
    "reset_runner": "runner.singleton",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
