"""Sessions for programs without an event loop: the asynchronous client, waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from forebay.sdk.background_loop import Calls
from forebay.sdk.reservations import MAX_PENDING
from forebay.sdk.session_client import AsyncSessionClient

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType
    from typing import Unpack

    from forebay.sdk.background_loop import BackgroundLoop
    from forebay.sdk.sent_prompt import AsyncSentPrompt
    from forebay.sdk.session_client import SessionOptions
    from forebay.sdk.sync_client import Client
    from forebay.sdk.values import (
        Message,
        PendingPrompts,
        Prompt,
        SessionEvent,
        SessionState,
        Turn,
    )


class SentPrompt:
    """What `send` returns: the prompt's events as they come, and its result."""

    def __init__(self, loop: BackgroundLoop, sent: AsyncSentPrompt) -> None:
        self._loop = loop
        self._sent = sent
        self.prompt_id = sent.prompt_id

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._sent.done

    def result(self) -> Turn:
        """Wait for the end; raises TurnFailed, or the SdkError that made waiting pointless."""
        return self._loop.run(self._sent.result())

    def events(self) -> Generator[SessionEvent, None, None]:
        """Yield its events, the terminal one last; for one reader."""
        return self._loop.iterate(self._sent.events())


class SessionClient:
    """One session of a client: `create_or_attach`, `load` or `resume` one, then talk.

    Each method is that of `AsyncSessionClient`.
    """

    def __init__(self, client: Client, session: AsyncSessionClient) -> None:
        self._client = client
        self._loop = client.loop
        self.asynchronous = session
        """What does the work; to be used on the client's `loop` only."""
        self.session_id = session.session_id
        self.model = session.model
        self.max_pending = session.max_pending
        """How many prompts may be under way here; None: any number."""
        self.is_new = session.is_new
        """Whether this client made the session."""
        self.history = session.history
        """What had been said when it was loaded."""

    @classmethod
    def create_or_attach(
        cls, client: Client, session_id: str | None = None, **options: Unpack[SessionOptions]
    ) -> Self:
        """Attach to a session that is there, else make one (`is_new`); that needs a `model`."""
        making = AsyncSessionClient.create_or_attach(client.asynchronous, session_id, **options)
        return cls(client, client.loop.run(making))

    @classmethod
    def load(
        cls, client: Client, session_id: str, *, max_pending: float | None = MAX_PENDING
    ) -> Self:
        """Attach to a session that must be there, and fetch its `history`; raises NotFound."""
        loading = AsyncSessionClient.load(client.asynchronous, session_id, max_pending=max_pending)
        return cls(client, client.loop.run(loading))

    @classmethod
    def resume(
        cls,
        client: Client,
        session_id: str,
        last_event_id: int,
        *,
        max_pending: float | None = MAX_PENDING,
    ) -> Self:
        """Go on after a known event: `events()` begins with what came since; raises NotFound."""
        resuming = AsyncSessionClient.resume(
            client.asynchronous, session_id, last_event_id, max_pending=max_pending
        )
        return cls(client, client.loop.run(resuming))

    def prompt(
        self,
        prompt: Prompt,
        *,
        deadline_ms: float | None = None,
        priority: str | None = None,
        on_event: Callable[[SessionEvent], object] | None = None,
    ) -> Turn:
        """Say something and wait for the end of the turn; raises TurnFailed."""
        calls = Calls()
        prompting = self.asynchronous.prompt(
            prompt, deadline_ms=deadline_ms, priority=priority, on_event=calls.here(on_event)
        )
        return self._loop.run(prompting, calls)

    def send(
        self, prompt: Prompt, *, deadline_ms: float | None = None, priority: str | None = None
    ) -> SentPrompt:
        """Say something and return as soon as it is accepted; raises PendingPromptLimitError."""
        sending = self.asynchronous.send(prompt, deadline_ms=deadline_ms, priority=priority)
        return SentPrompt(self._loop, self._loop.run(sending))

    def events(self) -> Generator[SessionEvent, None, None]:
        """Yield every event of the session from now on, until it is closed."""
        return self._loop.iterate(self.asynchronous.events())

    def cancel(self, prompt_id: str | None = None) -> str | None:
        """End the turn that runs, and return its prompt's id; None where none did."""
        return self._loop.run(self.asynchronous.cancel(prompt_id))

    def remove(self, prompt_id: str) -> bool:
        """Take a prompt out that waits; False where that was done before."""
        return self._loop.run(self.asynchronous.remove(prompt_id))

    def withdraw(self, prompt_id: str) -> None:
        """End a prompt whether it waits or runs; nothing where it has ended."""
        self._loop.run(self.asynchronous.withdraw(prompt_id))

    def pending(self) -> PendingPrompts:
        """Return the prompts that wait or run, whoever sent them."""
        return self._loop.run(self.asynchronous.pending())

    def state(self) -> SessionState:
        """Return the session as the gateway sees it now."""
        return self._loop.run(self.asynchronous.state())

    def messages(self) -> list[Message]:
        """Return what has been said, as it would be sent."""
        return self._loop.run(self.asynchronous.messages())

    def branch(self) -> Self:
        """Make another session with the same history, when the turns before it are done."""
        return type(self)(self._client, self._loop.run(self.asynchronous.branch()))

    @property
    def last_event_id(self) -> int:
        """The last event heard; `resume` goes on after it."""
        return self.asynchronous.last_event_id

    @property
    def pending_here(self) -> int:
        """How many prompts of the session are under way by this client."""
        return self.asynchronous.pending_here

    def close(self, *, delete: bool = False) -> None:
        """Stop listening; waits raise ClientClosed. With `delete` the session itself is ended."""
        self._loop.run(self.asynchronous.close(delete=delete))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
