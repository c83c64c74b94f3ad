"""The program-wide runner: `get_runner` makes it, `reset_runner` ends it.

Inside the gateway that is the gateway's own: it imports an app's modules (`jobs.modules`), which
register their task types with `get_runner()`. So the same module works in the app by itself and in
the gateway.
"""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.errors import NotAllowed
from forebay.jobs.runner.runner import TaskRunner

if TYPE_CHECKING:
    from collections.abc import Sequence

DATABASE = "sqlite:///forebay.db"
"""Where an app keeps jobs unless told otherwise; a gateway started in that folder uses it, too."""

_lock = threading.Lock()
_runner: TaskRunner | None = None


def get_runner(database: str | None = None, **options: Any) -> TaskRunner:
    """Return the program's runner, made and started by the first call.

    Only that call's arguments count, which are `TaskRunner`'s. However many threads ask at once,
    one runner is made, inside the lock: one that lost the race would have begun to run jobs. Its
    task types are registered afterwards; what is queued for them waits until they are.
    """
    global _runner
    if _runner is not None:  # without the lock, so that a handler may ask during `reset_runner`
        return _runner
    with _lock:
        if _runner is None:
            runner = TaskRunner(database or DATABASE, **options)
            runner.start()
            _runner = runner
        return _runner


def reset_runner() -> None:
    """Shut the program's runner down and forget it; the next call of `get_runner` makes another."""
    global _runner
    with _lock:
        if _runner is not None:
            _runner.shutdown()  # a second one must not start on the same file before this is done
            _runner = None


def adopt_runner(runner: TaskRunner) -> None:
    """Make a runner that someone else starts and ends the program's own; replaces none."""
    global _runner
    with _lock:
        if _runner is not None and _runner is not runner:
            raise NotAllowed("this program has a runner already")
        _runner = runner


def disown_runner(runner: TaskRunner) -> None:
    """Forget an adopted runner; nothing happens to it."""
    global _runner
    with _lock:
        if _runner is runner:
            _runner = None


class BadModule(NotAllowed):
    """A module of `jobs.modules` cannot be imported."""

    code = "bad_module"


def load_task_types(runner: TaskRunner, modules: Sequence[str]) -> None:
    """Import the modules for the types they register; raises BadModule.

    They are looked for where Python looks, and in the current folder, as the app's own programs
    would find them.
    """
    adopt_runner(runner)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever the app's code raises while it is imported
            raise BadModule(
                f"jobs.modules: {name} cannot be imported: {type(error).__name__}: {error}"
            ) from error
