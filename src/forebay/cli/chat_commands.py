"""A talk with a model, and what can be said to the command instead: `/help` and the others."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from forebay.cli.chat_turn import Saying, TurnView
from forebay.cli.console import say
from forebay.cli.gateway_client import harmless, printable
from forebay.sdk import NotFound, SdkError, SessionClient, TurnFailed
from forebay.sdk.background_loop import Calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.cli.chat_screen import Screen
    from forebay.sdk import Client

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


class Cancelled(Exception):
    """Ctrl-C has ended a turn."""


class Left(Exception):
    """Ctrl-C came again before the turn had ended: nothing is waited for any more."""


class Talk:
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
        saying = Saying(self._client.asynchronous, self.session.asynchronous, text)
        view, calls = TurnView(self._screen), Calls()
        note = calls.here(view.note)
        assert note is not None
        try:
            turn = self._client.loop.run(saying.run(note), calls)
        except KeyboardInterrupt:
            view.break_off()
            if not saying.is_over:  # a second one, while the turn was being ended
                raise Left from None
            if not self._screen.is_interactive:
                raise
            raise Cancelled from None
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
