"""Sending a prompt and following it: what a client and its session clients have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.sdk.errors import ClientClosed, SdkError, SessionEnded
from forebay.sdk.open_prompts import OpenPrompts
from forebay.sdk.reservations import Reservations
from forebay.sdk.sent_prompt import AsyncSentPrompt
from forebay.sdk.session_calls import PromptRequest, SessionCalls
from forebay.sdk.subscription import Subscription
from forebay.sdk.values import Turn

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from forebay.sdk.transport import Transport
    from forebay.sdk.values import SessionEvent


class Prompting:
    """What prompts need, shared by everything of one client."""

    def __init__(self, transport: Transport, random: random.Random) -> None:
        self.transport = transport
        self.random = random
        self.reservations = Reservations()
        self.calls = SessionCalls(transport)

    async def send(
        self, prompts: OpenPrompts, session_id: str, request: PromptRequest, limit: int | None
    ) -> AsyncSentPrompt:
        """Hand in a prompt; raises PendingPromptLimitError before anything is sent, and SdkError.

        The reservation is given back where that fails or is cancelled, else by the prompt's end.
        """
        reservation = self.reservations.take(session_id, limit)
        prompts.begin()
        try:
            taken = await self.calls.send(session_id, request)
            if isinstance(taken, Turn):
                prompt = AsyncSentPrompt(taken.prompt_id, reservation, 0)
                prompt.settle(taken)
                return prompt
            return prompts.accept(taken, reservation)
        except BaseException:
            reservation.release()
            raise
        finally:
            prompts.finish()

    async def follow(self, subscription: Subscription, prompts: OpenPrompts) -> None:
        """Read events until they end for good; then whatever is still open ends, too."""
        end: SdkError = ClientClosed("the client was closed while it waited")
        try:
            await subscription.run()
            end = SessionEnded("the session was closed")
        except SdkError as error:
            end = error
        finally:
            prompts.fail(end)

    async def prompt_once(
        self,
        session_id: str,
        request: PromptRequest,
        limit: int | None,
        on_event: Callable[[SessionEvent], object] | None,
    ) -> Turn:
        """Send a prompt and follow its session only until it has ended."""
        prompts = OpenPrompts(self.transport, session_id)
        prompt = await self.send(prompts, session_id, request, limit)
        subscription = Subscription(
            self.transport, self.random, session_id, prompt.after_event_id, prompts
        )
        following = self.transport.tasks.start(self.follow(subscription, prompts))
        try:
            return await prompt.told(on_event)
        finally:
            await self.transport.tasks.end(following)
