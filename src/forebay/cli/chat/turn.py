"""One turn of a chat, and the screen: a terminal with a live line, or plain pipes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TextIO

from forebay.cli.output.text import harmless, printable, short
from forebay.sdk import Place, SdkError, SessionEvent
from forebay.settings.environment import current_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.sdk import AsyncClient, AsyncSentPrompt, AsyncSessionClient, Turn

ERASE = "\r\x1b[2K"
DIM, PLAIN = "\x1b[2m", "\x1b[0m"
PROMPT = "> "
GOES_ON = "\\"
"""At the end of a line: the next one belongs to it."""
LOOK_EVERY_S = 1.0


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
    """Where the conversation is shown and typed."""

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


class PromptTurn:
    """A prompt until its turn has ended; cancelling ends the turn at the gateway, too."""

    def __init__(self, client: AsyncClient, session: AsyncSessionClient, text: str) -> None:
        self._client = client
        self._session = session
        self._text = text
        self.is_over = True
        """Whether nothing of it is at the gateway, as far as we know: before and after."""

    async def run(self, note: Callable[[SessionEvent | Place], object]) -> Turn:
        """Send it and report what happens to `note`; raises SdkError."""
        self.is_over = False
        sending = asyncio.ensure_future(self._session.send(self._text))
        try:
            sent = await asyncio.shield(sending)  # else nobody would know what was accepted
            return await follow(self._client, sent, note)
        except asyncio.CancelledError:
            sent = await sending
            await self._session.withdraw(sent.prompt_id)
            with contextlib.suppress(SdkError):
                await sent.result()
            raise
        finally:
            self.is_over = True


async def follow(
    client: AsyncClient, sent: AsyncSentPrompt, note: Callable[[SessionEvent | Place], object]
) -> Turn:
    """Report what happens to a prompt, its place every second included; raises TurnFailed."""
    looking = asyncio.ensure_future(_look(client, sent.prompt_id, note))
    try:
        async for event in sent.events():
            if event.type.endswith("_delta"):
                looking.cancel()
            note(event)
        return await sent.result()
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def _look(
    client: AsyncClient, prompt_id: str, note: Callable[[SessionEvent | Place], object]
) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        with contextlib.suppress(SdkError):  # not in the one line (yet), or no longer
            note(await client.queue(prompt_id))


class TurnView:
    """Shows one turn."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._shown: list[str] = []

    def note(self, news: SessionEvent | Place) -> None:
        if isinstance(news, Place):
            if news.position is not None:
                wait_s = news.estimated_wait_seconds.p50
                self._screen.waiting.show(place_in_words(news.position, wait_s))
            return
        data = news.data
        match news.type:
            case "pending_prompt_added":
                words = place_in_words(
                    data.get("position"),
                    data.get("estimatedWaitSeconds"),
                    str(data.get("waitsFor")),
                )
                self._screen.waiting.show(words)
            case "pending_prompt_started":
                self._screen.waiting.clear()
            case "text_delta":
                self._shown.append(str(data.get("text") or ""))
                self._screen.write(self._shown[-1])
            case "reasoning_delta":
                self._screen.write_thought(str(data.get("text") or ""))
            case _:
                pass  # of interest to programs only

    def finish(self, turn: Turn) -> None:
        """Show what is missing of the answer: pieces may have been lost on the way."""
        shown = "".join(self._shown)
        if turn.text.startswith(shown):
            self._screen.write(turn.text[len(shown) :] + "\n")
        else:
            self._screen.write(f"\n(pieces were lost; the whole answer:)\n{turn.text}\n")

    def break_off(self) -> None:
        """End the line of an answer that will not go on."""
        self._screen.waiting.clear()
        if self._shown:
            self._screen.write("\n")
