"""One turn of a chat: the place in line while it waits, then the words as they come."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from forebay.cli.chat_screen import place_in_words
from forebay.sdk import Place, SdkError, SessionEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.cli.chat_screen import Screen
    from forebay.sdk import AsyncClient, AsyncSentPrompt, AsyncSessionClient, Turn

LOOK_EVERY_S = 1.0


class Saying:
    """Something that is said, until its turn has ended; cancelled, it ends the turn, too."""

    def __init__(self, client: AsyncClient, session: AsyncSessionClient, text: str) -> None:
        self._client = client
        self._session = session
        self._text = text
        self.is_over = True
        """Nothing of it is at the gateway, as far as we know: before it is said, and at the end."""

    async def run(self, note: Callable[[SessionEvent | Place], object]) -> Turn:
        """Say it and tell what happens; raises SdkError."""
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
    """Tell what happens to a prompt, its place every second included; raises TurnFailed."""
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
        """Show what has happened."""
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
