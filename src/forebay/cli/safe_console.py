"""Rich's console, with nothing but our own colours and movements in what it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.segment import Segment

from forebay.cli.clean import harmless

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import ConsoleOptions, RenderableType


class SafeConsole(Console):
    """Cleans every text that is drawn, and leaves it to the command when nobody reads on."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the pieces of what is drawn; those that steer the terminal are rich's own."""
        for piece in super().render(renderable, options):
            if piece.control:
                yield piece
            else:
                yield Segment(harmless(piece.text), piece.style)

    def on_broken_pipe(self) -> None:
        """Let the command end as it does without colours."""
        raise BrokenPipeError
