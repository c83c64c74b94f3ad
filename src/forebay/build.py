"""Which build this is: the hot path compiled to C extensions, or plain Python.

The source is the same for both. Installing compiles where a C compiler is there (`hatch_build.py`);
a wheel that is plain has the reason in a file beside this one.
"""

from importlib.machinery import ExtensionFileLoader, PathFinder
from pathlib import Path
from typing import Final, Literal, TypeAlias

Build: TypeAlias = Literal["compiled", "plain"]

_PACKAGE = Path(__file__).parent


def _kind() -> Build:
    """Ask the import system what it would load, without loading it."""
    found = PathFinder.find_spec("scheduler", [str(_PACKAGE / "core")])
    is_extension = found is not None and isinstance(found.loader, ExtensionFileLoader)
    return "compiled" if is_extension else "plain"


BUILD: Final = _kind()


def describe_build() -> str:
    """Return the build in words for people, with the reason where installing left one."""
    if BUILD == "compiled":
        return "compiled"
    reason = _PACKAGE / "plain.txt"
    return f"plain Python: {reason.read_text().strip()}" if reason.exists() else "plain Python"
