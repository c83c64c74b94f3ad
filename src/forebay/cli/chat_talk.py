"""A talk at the terminal, or from a pipe: from its beginning to how to come back to it."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import NamedTuple, NoReturn

from forebay.cli.chat_commands import HELP, Cancelled, Left, Talk
from forebay.cli.chat_screen import Screen
from forebay.cli.console import fail, say
from forebay.cli.exits import FAILED, INTERRUPTED, NOT_ALLOWED, NOT_REACHABLE, USAGE
from forebay.cli.gateway_client import printable, where_and_key
from forebay.cli.invocation import as_called
from forebay.sdk import (
    Client,
    GatewayAway,
    GatewayError,
    NotAllowed,
    NotFound,
    SdkError,
    SessionClient,
)

TURNS_SHOWN = 6
"""Messages of a session that is taken up again."""


class Asked(NamedTuple):
    """What was typed."""

    session: str | None
    model: str | None
    system: str | None
    url: str | None
    key_env: str


def talk(asked: Asked) -> int:
    """Talk until somebody leaves, and return the exit status."""
    where, key = where_and_key(asked.url, asked.key_env)
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):  # nobody's letters may end a talk
            stream.reconfigure(errors="replace")
    screen = Screen(sys.stdin, sys.stdout, sys.stderr)
    with Client(where, key) as client:
        try:
            begun = _begin(client, asked)
        except KeyboardInterrupt:
            return INTERRUPTED
        except SdkError as error:
            _give_up(error, asked.session, has_key=key is not None)
        return _talk(Talk(client, begun, asked.system, screen), screen, _how_back(asked))


def _how_back(asked: Asked) -> str:
    back = f" --url {asked.url}" if asked.url else ""
    return back + (f" --key-env {asked.key_env}" if asked.key_env else "")


def _begin(client: Client, asked: Asked) -> SessionClient:
    if asked.session is None:
        model = asked.model or _first_model(client)
        return SessionClient.create_or_attach(client, model=model, system=asked.system)
    found = SessionClient.load(client, asked.session)
    if asked.model not in (None, found.model):
        fail(f"session {asked.session} is with {found.model}. Leave out --model.", code=USAGE)
    return found


def _first_model(client: Client) -> str:
    models = client.models()
    if not models:
        fail(f"the gateway has no model. Add a node with: {as_called('nodes add URL')}")
    return models[0]


def _talk(talk: Talk, screen: Screen, back: str) -> int:
    """Talk until somebody leaves, and say how to come back."""
    if screen.is_interactive:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - input() then has line editing and history
    say(f"Talking with {printable(talk.session.model)} in session {talk.session.session_id}.")
    if screen.is_interactive:
        say(HELP[0])
        talk.show_history(TURNS_SHOWN)
    status = 0
    try:
        status = _lines(talk, screen)
    except (KeyboardInterrupt, Left):
        status = INTERRUPTED
    except GatewayAway as away:
        say(f"forebay: {away}. Start one with: {as_called('serve')}. Or name it with --url.")
        status = NOT_REACHABLE
    finally:
        screen.waiting.clear()
        if talk.leave():
            say(f"To come back: {as_called('chat')} --session {talk.session.session_id}{back}")
    return status


def _lines(talk: Talk, screen: Screen) -> int:
    """Take line after line until somebody leaves; 1 where a turn of a pipe has failed."""
    status = 0
    is_warned = False
    while True:
        try:
            line = screen.read()
            if line is None or not talk.take(line):
                return 0 if screen.is_interactive else status
            is_warned = False
        except (KeyboardInterrupt, Cancelled) as stop:
            _warn(stop, screen, is_last=is_warned)
            is_warned = True
        except SdkError as error:
            status = FAILED
            _tell(error, screen)


def _warn(stop: BaseException, screen: Screen, *, is_last: bool) -> None:
    """Say what the next Ctrl-C does; raises the second of two in a row."""
    if isinstance(stop, Cancelled):
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
        fail(
            f"{error}. Start one with: {as_called('serve')}. Or name it with --url.",
            code=NOT_REACHABLE,
        )
    words = f"the gateway says: {printable(error)}."
    if isinstance(error, NotAllowed):
        words += f" Name {'another key' if has_key else 'a key'} with --key-env VAR."
        fail(words, code=NOT_ALLOWED)
    if isinstance(error, NotFound) and session_id is not None:
        words += " Without --session a new one is begun."
    elif isinstance(error, GatewayError) and error.hint:
        words += f" {printable(error.hint)}"
    fail(words)
