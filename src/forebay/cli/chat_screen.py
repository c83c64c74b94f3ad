"""What `forebay chat` shows, and where it reads: a terminal with a live line, or plain pipes."""

from __future__ import annotations

from typing import TextIO

from forebay.cli.clean import harmless, printable
from forebay.cli.durations import short
from forebay.settings.environment import current_environment

ERASE = "\r\x1b[2K"
DIM, PLAIN = "\x1b[2m", "\x1b[0m"
PROMPT = "> "
GOES_ON = "\\"
"""At the end of a line: the next one belongs to it."""


class WaitingLine:
    """One line that is drawn over and over, and leaves nothing behind."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_live = stream.isatty() and current_environment().get("TERM") != "dumb"
        self._is_shown = False

    def show(self, text: str) -> None:
        """Show this instead of what was there; nothing where nobody looks."""
        if self._is_live:
            self._stream.write(f"{ERASE}{DIM}{printable(text)}{PLAIN}")
            self._stream.flush()
            self._is_shown = True

    def clear(self) -> None:
        """Take it away."""
        if self._is_shown:
            self._stream.write(ERASE)
            self._stream.flush()
            self._is_shown = False


def place_in_words(position: object, estimate_s: object, waits_for: str = "queue") -> str:
    """Return where a prompt stands, as far as the gateway says it in numbers.

    >>> place_in_words(3, 12.2), place_in_words(1, None)
    ('in line: place 3, about 12 s', 'in line: place 1')
    >>> place_in_words(2, None, "session")
    'behind this session: place 2'
    >>> place_in_words("\\x1b[2J", "soon")
    'in line'
    """
    where = "in line" if waits_for != "session" else "behind this session"
    place = f"{where}: place {position}" if isinstance(position, int) else where
    if not isinstance(estimate_s, int | float):
        return place
    return f"{place}, about {short(max(1.0, estimate_s))}"


def _sendable(text: str) -> str:
    """Return text without what no JSON can hold: bytes that were not UTF-8 come as surrogates.

    >>> _sendable("caf\\udce9")
    'caf?'
    """
    return text.encode(errors="replace").decode()


class Screen:
    """Where the talk is shown and typed."""

    def __init__(self, source: TextIO, out: TextIO, errors: TextIO) -> None:
        self._source = source
        self._out = out
        self.is_interactive = source.isatty() and out.isatty()
        self.waiting = WaitingLine(errors)
        self._is_thinking = False

    def read(self) -> str | None:
        """Return what is typed next; None after Ctrl-D, or at the end of a pipe."""
        if not self.is_interactive:
            line = self._source.readline()
            return _sendable(line.rstrip("\r\n")) if line else None
        try:
            return _sendable(self._typed())
        except EOFError:
            self.write("\n")
            return None

    def write(self, text: str) -> None:
        """Write what a model said, or what is said about it, at once."""
        self.waiting.clear()
        if self._is_thinking:
            self._is_thinking = False
            self._out.write(f"{PLAIN}\n")
        self._out.write(harmless(text))
        self._out.flush()

    def write_thought(self, text: str) -> None:
        """Write what a model thinks, dimly; not at all into a pipe."""
        if self.is_interactive:
            self.waiting.clear()
            if not self._is_thinking:
                self._is_thinking = True
                self._out.write(DIM)
            self._out.write(harmless(text))
            self._out.flush()

    def _typed(self) -> str:
        lines = [input(PROMPT)]
        while lines[-1].endswith(GOES_ON):
            lines[-1] = lines[-1].removesuffix(GOES_ON)
            lines.append(input("  "))
        return "\n".join(lines)
