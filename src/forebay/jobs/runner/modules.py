"""An app's own task types inside the gateway: its modules are imported, and register them.

They do so with `get_runner()`, which is then the gateway's own runner; so the same module works
in the app by itself and in the gateway.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.errors import NotAllowed
from forebay.jobs.runner.singleton import adopt_runner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.jobs.runner.runner import TaskRunner


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
