"""Count the work of a piece of code by the functions that it calls, which no machine changes."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["functions_called"]


def functions_called(action: Callable[[], object]) -> list[str]:
    """Return the names of the functions that are called, in order, those written in C as well.

    No garbage is collected meanwhile: that calls what others have registered for it.
    """
    called: list[str] = []

    def note(frame: FrameType, kind: str, argument: object) -> None:
        if kind == "call":
            called.append(frame.f_code.co_name)
        elif kind == "c_call":
            called.append(getattr(argument, "__name__", ""))

    collecting = gc.isenabled()
    gc.disable()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        if collecting:
            gc.enable()
    return called[:-1]  # the last one is setprofile
