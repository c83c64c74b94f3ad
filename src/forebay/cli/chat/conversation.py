"""A conversation at the terminal or from a pipe, until it is left; and its `/` commands."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from forebay.cli.chat.turn import PromptTurn, Screen, TurnView
from forebay.cli.exits import FAILED, INTERRUPTED, NOT_ALLOWED, NOT_REACHABLE, USAGE
from forebay.cli.gateway import start_hint, where_and_key
from forebay.cli.invocation import as_called
from forebay.cli.output.console import fail, say
from forebay.cli.output.text import harmless, printable
from forebay.sdk import (
    Client,
    GatewayAway,
    GatewayError,
    NotAllowed,
    NotFound,
    SdkError,
    SessionClient,
    TurnFailed,
)
from forebay.sdk.background_loop import CallbackQueue

if TYPE_CHECKING:
    from collections.abc import Callable


TURNS_SHOWN = 6
"""Messages of a session that is taken up again."""
HELP = (
    "Type, and Enter sends it. /help lists commands; Ctrl-C ends an answer; Ctrl-D leaves.",
    "/new      begin a new session with the same model",
    "/branch   go on in a copy of this session; the old one stays as it is",
    "/cancel   end the turn that runs in this session, whoever began it",
    "/history  show what has been said",
    "/queue    show how long the line is",
    "/quit     leave; so does Ctrl-D",
    "//...     says something that begins with one slash",
    "A backslash at the end of a line goes on in the next.",
)
NAMES = {"user": "you", "assistant": "model", "system": "system"}


class ChatOptions(NamedTuple):
    """What was typed."""

    session: str | None
    model: str | None
    system: str | None
    url: str | None
    key_env: str


def chat(options: ChatOptions) -> int:
    """Talk until the user leaves, and return the exit status."""
    where, key = where_and_key(options.url, options.key_env)
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):  # no odd letter may end a conversation
            stream.reconfigure(errors="replace")
    screen = Screen(sys.stdin, sys.stdout, sys.stderr)
    with Client(where, key) as client:
        try:
            begun = _begin(client, options)
        except KeyboardInterrupt:
            return INTERRUPTED
        except SdkError as error:
            _give_up(error, options.session, has_key=key is not None)
        return _talk(
            TerminalChat(client, begun, options.system, screen), screen, _how_back(options)
        )


def _how_back(options: ChatOptions) -> str:
    back = f" --url {options.url}" if options.url else ""
    return back + (f" --key-env {options.key_env}" if options.key_env else "")


def _begin(client: Client, options: ChatOptions) -> SessionClient:
    if options.session is None:
        model = options.model or _first_model(client)
        return SessionClient.create_or_attach(client, model=model, system=options.system)
    found = SessionClient.load(client, options.session)
    if options.model not in (None, found.model):
        fail(f"session {options.session} is with {found.model}. Leave out --model.", code=USAGE)
    return found


def _first_model(client: Client) -> str:
    models = client.models()
    if not models:
        fail(f"the gateway has no model. Add a node with: {as_called('nodes add URL')}")
    return models[0]


def _talk(conversation: TerminalChat, screen: Screen, back: str) -> int:
    """Talk until the user leaves, and say how to come back."""
    if screen.is_interactive:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - input() then has line editing and history
    session = conversation.session
    say(f"Talking with {printable(session.model)} in session {session.session_id}.")
    if screen.is_interactive:
        say(HELP[0])
        conversation.show_history(TURNS_SHOWN)
    status = 0
    try:
        status = _lines(conversation, screen)
    except (KeyboardInterrupt, ChatLeft):
        status = INTERRUPTED
    except GatewayAway as away:
        say(f"forebay: {away}. {start_hint()}")
        status = NOT_REACHABLE
    finally:
        screen.waiting.clear()
        if conversation.leave():
            session = conversation.session  # it may be another one by now
            say(f"To come back: {as_called('chat')} --session {session.session_id}{back}")
    return status


def _lines(conversation: TerminalChat, screen: Screen) -> int:
    """Take line after line until the user leaves; 1 where a turn of a pipe has failed."""
    status = 0
    is_warned = False
    while True:
        try:
            line = screen.read()
            if line is None or not conversation.take(line):
                return 0 if screen.is_interactive else status
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
        hint = " /new begins another session." if isinstance(error, NotFound) else ""
        say(f"The gateway says: {printable(error)}.{hint if screen.is_interactive else ''}")
    elif screen.is_interactive:
        say(f"{error}. Say it again when it is back.")
    else:
        raise error


def _give_up(error: SdkError, session_id: str | None, *, has_key: bool) -> NoReturn:
    if isinstance(error, GatewayAway):
        fail(f"{error}. {start_hint()}", code=NOT_REACHABLE)
    words = f"the gateway says: {printable(error)}."
    if isinstance(error, NotAllowed):
        words += f" Name {'another key' if has_key else 'a key'} with --key-env VAR."
        fail(words, code=NOT_ALLOWED)
    if isinstance(error, NotFound) and session_id is not None:
        words += " Without --session a new one is begun."
    elif isinstance(error, GatewayError) and error.hint:
        words += f" {printable(error.hint)}"
    fail(words)


class TurnCancelled(Exception):
    """Ctrl-C has ended a turn."""


class ChatLeft(Exception):
    """Ctrl-C came again before the turn had ended: nothing is waited for any more."""


class TerminalChat:
    """One conversation, which may be changed for another."""

    def __init__(
        self, client: Client, session: SessionClient, system: str | None, screen: Screen
    ) -> None:
        self._client = client
        self._system = system
        self._screen = screen
        self.session = session
        self._is_empty = session.is_new
        """Nothing has been said in a session that was made here."""
        self._commands: dict[str, Callable[[], bool]] = {
            "/help": self._help,
            "/new": self._new,
            "/branch": self._branch,
            "/cancel": self._cancel,
            "/history": self._history,
            "/queue": self._queue,
            "/quit": lambda: False,
        }

    def take(self, line: str) -> bool:
        """Do what a line says; False where it says to leave. Raises SdkError."""
        if not line.strip():
            return True
        if not self._screen.is_interactive or not line.startswith("/"):
            self._say(line)
        elif line.startswith("//"):
            self._say(line[1:])
        else:
            command = self._commands.get(line.strip())
            if command is not None:
                return command()
            say(f"There is no {printable(line.strip())}. /help lists what there is.")
        return True

    def show_history(self, last: int | None = None) -> None:
        """Show what was said, or the last of it."""
        messages = self.session.history if last is not None else self.session.messages()
        for message in messages[-last:] if last is not None else messages:
            name = NAMES.get(str(message.get("role")), "other")
            self._screen.write(f"{name}: {harmless(str(message.get('content')))}\n")

    def leave(self) -> bool:
        """Let go of the session, and say whether it is worth coming back to."""
        with contextlib.suppress(SdkError):
            self.session.close(delete=self._is_empty)
        return not self._is_empty

    # -- a turn

    def _say(self, text: str) -> None:
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

    # -- commands

    def _help(self) -> bool:
        for line in HELP:
            say(line)
        return True

    def _new(self) -> bool:
        session = SessionClient.create_or_attach(
            self._client, model=self.session.model, system=self._system
        )
        return self._move_to(session)

    def _branch(self) -> bool:
        branch = self.session.branch()
        was_empty = self._is_empty
        self._move_to(branch)
        self._is_empty = was_empty
        return True

    def _move_to(self, session: SessionClient) -> bool:
        before = self.session.session_id
        is_worth_it = self.leave()
        self.session, self._is_empty = session, True
        stays = f" (session {before} stays)" if is_worth_it else ""
        say(f"Now in session {session.session_id}{stays}.")
        return True

    def _cancel(self) -> bool:
        try:
            ended = self.session.cancel()
        except NotFound:
            ended = None
        say("Nothing runs in this session." if ended is None else "Cancelled.")
        return True

    def _history(self) -> bool:
        self.show_history()
        return True

    def _queue(self) -> bool:
        seen = self._client.queue()
        say(
            f"{seen.waiting} waiting, {seen.processing} running; the mean wait is "
            f"{seen.average_wait_seconds:.1f} s."
        )
        return True
