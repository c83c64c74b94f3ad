"""A conversation at the terminal or from a pipe, until it is left."""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
from typing import TYPE_CHECKING, NamedTuple, TextIO

from forebay.cli.exits import FAILED, INTERRUPTED, NOT_REACHABLE, USAGE
from forebay.cli.gateway import GatewayClient, start_hint
from forebay.cli.invocation import as_called, at_gateway
from forebay.cli.output.console import fail, say
from forebay.cli.output.text import harmless, printable, short
from forebay.sdk import (
    Client,
    GatewayAway,
    NotFound,
    Place,
    SdkError,
    SessionClient,
    SessionEvent,
    TurnFailed,
)
from forebay.sdk.sync_client import CallbackQueue
from forebay.settings.environment import current_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.sdk import AsyncClient, AsyncSessionClient, Turn

ERASE = "\r\x1b[2K"
DIM, PLAIN = "\x1b[2m", "\x1b[0m"
PROMPT = "> "
GOES_ON = "\\"
"""At the end of a line: the next one belongs to it."""
LOOK_EVERY_S = 1.0
TURNS_SHOWN = 6
"""Messages of a session that is taken up again."""
HELP = (
    "Type a prompt and press Enter; a backslash at the end of a line continues it on the next. "
    "Ctrl-C ends an answer; Ctrl-D leaves."
)
NAMES = {"user": "you", "assistant": "model", "system": "system"}


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
        self._errors = errors
        self.is_interactive = source.isatty() and out.isatty()
        self._has_line = errors.isatty() and current_environment().get("TERM") != "dumb"
        self._is_waiting = False
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

    def show_waiting(self, text: str) -> None:
        """Show a line that is drawn over and over; nothing where nobody looks."""
        if self._has_line:
            self._errors.write(f"{ERASE}{DIM}{printable(text)}{PLAIN}")
            self._errors.flush()
            self._is_waiting = True

    def clear_waiting(self) -> None:
        if self._is_waiting:
            self._errors.write(ERASE)
            self._errors.flush()
            self._is_waiting = False

    def write(self, text: str) -> None:
        """Write what a model said, or what is said about it, at once."""
        self.clear_waiting()
        if self._is_thinking:
            self._is_thinking = False
            self._out.write(f"{PLAIN}\n")
        self._out.write(harmless(text))
        self._out.flush()

    def write_thought(self, text: str) -> None:
        """Write what a model thinks, dimly; not at all into a pipe."""
        if self.is_interactive:
            self.clear_waiting()
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
        """Send it and report what happens, its place every second included; raises SdkError."""
        self.is_over = False
        sending = asyncio.ensure_future(self._session.send(self._text))
        looking: asyncio.Task[None] | None = None
        try:
            sent = await asyncio.shield(sending)  # else nobody would know what was accepted
            looking = asyncio.ensure_future(self._look(sent.prompt_id, note))
            async for event in sent.events():
                if event.type.endswith("_delta"):
                    looking.cancel()
                note(event)
            return await sent.result()
        except asyncio.CancelledError:
            sent = await sending
            await self._session.withdraw(sent.prompt_id)
            with contextlib.suppress(SdkError):
                await sent.result()
            raise
        finally:
            self.is_over = True
            if looking is not None:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)

    async def _look(self, prompt_id: str, note: Callable[[SessionEvent | Place], object]) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            with contextlib.suppress(SdkError):  # not in the one line (yet), or no longer
                note(await self._client.queue(prompt_id))


class TurnView:
    """Shows one turn."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._shown: list[str] = []

    def note(self, news: SessionEvent | Place) -> None:
        if isinstance(news, Place):
            if news.position is not None:
                wait_s = news.estimated_wait_seconds.p50
                self._screen.show_waiting(place_in_words(news.position, wait_s))
            return
        data = news.data
        match news.type:
            case "pending_prompt_added":
                words = place_in_words(
                    data.get("position"),
                    data.get("estimatedWaitSeconds"),
                    str(data.get("waitsFor")),
                )
                self._screen.show_waiting(words)
            case "pending_prompt_started":
                self._screen.clear_waiting()
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
        self._screen.clear_waiting()
        if self._shown:
            self._screen.write("\n")


class ChatOptions(NamedTuple):
    """What was typed."""

    session: str | None
    model: str | None
    system: str | None
    url: str | None
    key_env: str


def chat(options: ChatOptions) -> int:
    """Talk until the user leaves, and return the exit status."""
    gateway = GatewayClient(options.url, options.key_env)
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):  # no odd letter may end a conversation
            stream.reconfigure(errors="replace")
    screen = Screen(sys.stdin, sys.stdout, sys.stderr)
    with Client(gateway.url, gateway.key) as client:
        try:
            with gateway.or_exit():
                begun = _begin(client, options)
        except KeyboardInterrupt:
            return INTERRUPTED
        return _talk(TerminalChat(client, begun, screen), screen, _how_back(options))


def _how_back(options: ChatOptions) -> str:
    back = f" --url {options.url}" if options.url else ""
    return back + (f" --key-env {options.key_env}" if options.key_env else "")


def _begin(client: Client, options: ChatOptions) -> SessionClient:
    if options.session is None:
        model = options.model or _first_model(client)
        return SessionClient.create_or_attach(client, model=model, system=options.system)
    try:
        found = SessionClient.load(client, options.session)
    except NotFound as gone:
        fail(f"the gateway says: {printable(gone)}. Without --session a new one is created.")
    if options.model not in (None, found.model):
        fail(f"session {options.session} is with {found.model}. Leave out --model.", code=USAGE)
    return found


def _first_model(client: Client) -> str:
    models = client.models()
    if not models:
        fail(f"the gateway has no model. Add a node with: {at_gateway('nodes add URL')}")
    return models[0]


def _talk(conversation: TerminalChat, screen: Screen, back: str) -> int:
    """Talk until the user leaves, and say how to come back."""
    if screen.is_interactive:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - input() then has line editing and history
    session = conversation.session
    say(f"Talking with {printable(session.model)} in session {session.session_id}.")
    if screen.is_interactive:
        say(HELP)
        conversation.show_history()
    status = 0
    try:
        status = _lines(conversation, screen)
    except (KeyboardInterrupt, ChatLeft):
        status = INTERRUPTED
    except GatewayAway as away:
        say(f"forebay: {away}. {start_hint()}")
        status = NOT_REACHABLE
    finally:
        screen.clear_waiting()
        if conversation.leave():
            say(f"To come back: {as_called('chat')} --session {session.session_id}{back}")
    return status


def _lines(conversation: TerminalChat, screen: Screen) -> int:
    """Take line after line until the user leaves; 1 where a turn of a pipe has failed."""
    status = 0
    is_warned = False
    while True:
        try:
            line = screen.read()
            if line is None:
                return 0 if screen.is_interactive else status
            if line.strip():
                conversation.talk(line)
            is_warned = False
        except (KeyboardInterrupt, TurnCancelled) as stop:
            _warn(stop, screen, is_last=is_warned)
            is_warned = True
        except SdkError as error:
            status = FAILED
            _tell(error, screen)


def _warn(stop: BaseException, screen: Screen, *, is_last: bool) -> None:
    """Say what the next Ctrl-C does; raises the second of two in a row."""
    if isinstance(stop, TurnCancelled):
        say("(cancelled; Ctrl-C again leaves)")
    elif is_last or not screen.is_interactive:
        raise stop
    else:
        say("\n(Ctrl-C again leaves)")


def _tell(error: SdkError, screen: Screen) -> None:
    if not isinstance(error, GatewayAway):
        hint = f" A new session: {as_called('chat')}" if isinstance(error, NotFound) else ""
        say(f"The gateway says: {printable(error)}.{hint if screen.is_interactive else ''}")
    elif screen.is_interactive:
        say(f"{error}. Send it again when the gateway is back.")
    else:
        raise error


class TurnCancelled(Exception):
    """Ctrl-C has ended a turn."""


class ChatLeft(Exception):
    """Ctrl-C came again before the turn had ended: nothing is waited for any more."""


class TerminalChat:
    """One conversation."""

    def __init__(self, client: Client, session: SessionClient, screen: Screen) -> None:
        self._client = client
        self._screen = screen
        self.session = session
        self._is_empty = session.is_new
        """Nothing has been said in a session that was made here."""

    def show_history(self) -> None:
        """Show the last of what was said before."""
        for message in self.session.history[-TURNS_SHOWN:]:
            name = NAMES.get(str(message.get("role")), "other")
            self._screen.write(f"{name}: {harmless(str(message.get('content')))}\n")

    def leave(self) -> bool:
        """Let go of the session, and say whether it is worth coming back to."""
        with contextlib.suppress(SdkError):
            self.session.close(delete=self._is_empty)
        return not self._is_empty

    def talk(self, text: str) -> None:
        """Send a prompt and show its turn; raises SdkError, TurnCancelled and ChatLeft."""
        self._is_empty = False
        saying = PromptTurn(self._client.asynchronous, self.session.asynchronous, text)
        view, calls = TurnView(self._screen), CallbackQueue()
        note = calls.forward(view.note)
        assert note is not None
        try:
            turn = self._client.loop.run(saying.run(note), calls)
        except KeyboardInterrupt:
            view.break_off()
            if not saying.is_over:  # a second one, while the turn was being ended
                raise ChatLeft from None
            if not self._screen.is_interactive:
                raise
            raise TurnCancelled from None
        except TurnFailed as failed:
            view.break_off()
            if not self._screen.is_interactive:
                raise
            say(f"(the turn failed: {printable(failed)})")
        else:
            view.finish(turn)
