"""A running gateway, asked through the SDK: what all commands that do so have in common.

The SDK is imported when something is asked: a list of options needs nothing of it.
"""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, NoReturn, TypeVar

import typer

from forebay.cli.exits import FAILED, NOT_ALLOWED, NOT_REACHABLE, USAGE
from forebay.cli.invocation import as_called, asked_with, local_url
from forebay.cli.output.console import fail, say
from forebay.cli.output.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from forebay.sdk import SdkError
    from forebay.sdk.transport import Transport

T = TypeVar("T")

LIMIT_S = 10.0
"""A gateway answers these from memory; one that does not is not well."""

GatewayUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Address of the gateway; default: FOREBAY_URL, else the address in the settings, "
        "else http://127.0.0.1:7800.",
        show_default=False,
    ),
]
KeyEnv = Annotated[
    str,
    typer.Option(
        "--key-env",
        metavar="VAR",
        help="Environment variable with the API key for the gateway; default: FOREBAY_API_KEY.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class GatewayReply(NamedTuple, Generic[T]):
    """What the gateway said."""

    value: T
    raw: Any
    """The same as it came, for `--json`: a newer gateway may say more."""
    headers: Mapping[str, str]


class GatewayClient:
    """Asks one gateway, each time over a new connection. Raises SdkError; `insist` does not."""

    def __init__(self, url: str | None, key_env: str, limit_s: float = LIMIT_S) -> None:
        self.url, self.key = where_and_key(url, key_env)
        self._limit_s = limit_s

    def ask(self, method: str, path: str, kind: type[T], body: object = None) -> GatewayReply[T]:
        """Return the answer, which must be of this kind."""
        from forebay.sdk.transport import ApiCall, decoded

        call = ApiCall(method, path, body)
        _, headers, content = self.run(lambda transport: transport.fetch(call))
        content = content or b"null"
        return GatewayReply(decoded(content, kind), decoded(content, object), headers)

    def insist(self, method: str, path: str, kind: type[T], body: object = None) -> GatewayReply[T]:
        """Return the answer, or end the command with what went wrong."""
        with self.or_exit():
            return self.ask(method, path, kind, body)

    def run(self, work: Callable[[Transport], Coroutine[Any, Any, T]]) -> T:
        """Return what is done with a connection; Ctrl-C ends it."""
        from forebay.sdk import BadAnswer, GatewayAway, GatewayError

        try:
            return asyncio.run(self._run(work))
        except GatewayError as error:
            if error.code != "unknown" and not error.code.isdigit():  # a gateway's codes are words
                raise
            words = f"what answers at {self.url} is not a Forebay gateway (status {error.status})"
            # A proxy may answer so while the gateway behind it is started again.
            if error.status >= 500 or error.status == 404:
                raise GatewayAway(words, sent=True) from error
            raise BadAnswer(words) from error

    async def _run(self, work: Callable[[Transport], Coroutine[Any, Any, T]]) -> T:
        from forebay.sdk.transport import Transport, TransportOptions

        options = TransportOptions(self.url, self.key, self._limit_s)
        transport = Transport(options, random.Random())
        try:
            return await work(transport)
        finally:
            await transport.close()

    @contextmanager
    def or_exit(self, but: type[SdkError] | tuple[()] = ()) -> Iterator[None]:
        """End the command where the gateway cannot be reached, or says no; but for some errors."""
        from forebay.sdk import SdkError

        try:
            yield
        except but:
            raise
        except SdkError as error:
            self.give_up(error)

    def give_up(self, error: SdkError) -> NoReturn:
        """End the command with what went wrong, and what to do about it."""
        from forebay.sdk import GatewayError

        refused = isinstance(error, GatewayError)
        fail(self.explain(error), code=exit_code(error) if refused else NOT_REACHABLE)

    def explain(self, error: SdkError) -> str:
        """Return what went wrong, and what to do about it."""
        from forebay.sdk import GatewayAway, GatewayError
        from forebay.sdk.errors import is_about_the_key

        if isinstance(error, GatewayAway):
            return f"{printable(error)}. {start_hint()}"
        if not isinstance(error, GatewayError):
            words = printable(error)
            return f"{words}{'' if words.endswith('?') else '.'} Name the gateway with --url."
        hint = f" {printable(error.hint)}" if error.hint else ""
        if is_about_the_key(error):
            named = "another key" if self.key else "a key"
            hint = f" Name {named} with --key-env VAR, or set FOREBAY_API_KEY."
        message = printable(error.message).rstrip(".")
        return f"the gateway says: {message} ({printable(error.code)}).{hint}"


def exit_code(error: SdkError) -> int:
    """Return the status with which a command ends that the gateway refused."""
    from forebay.sdk.errors import is_about_the_key

    return NOT_ALLOWED if is_about_the_key(error) else FAILED


def start_hint() -> str:
    """Return what to do where no gateway answers."""
    return f"Start one with: {as_called('serve')}. Or name it with --url or FOREBAY_URL."


def say_outage(problem: SdkError | None) -> None:
    """Say that the gateway is away, or, without a problem, that it is back."""
    if problem is None:
        say("The gateway is back.")
    else:
        reason = printable(problem)
        say(f"{reason[:1].upper()}{reason[1:]}. Waiting for it to come back.")


def wait_s(seconds: float) -> None:
    """Let time pass; Ctrl-C ends it at once."""
    threading.Event().wait(seconds)


# -- where it is


def where_and_key(url: str | None, key_env: str) -> tuple[str, str | None]:
    """Return the gateway's address and the key to use, or end the command with what is wrong."""
    from forebay.settings import SettingsError, read_secret  # not for a list of options
    from forebay.settings.environment import current_environment
    from forebay.settings.places import KEY_VARIABLE, URL_VARIABLE

    asked_with(url, key_env)
    environ = current_environment()
    named = url or environ.get(URL_VARIABLE)
    try:
        asked = named or _configured_url()
        found = (asked if "://" in asked else f"http://{asked}").rstrip("/")
        usual = KEY_VARIABLE if environ.get(KEY_VARIABLE) else ""
        key = read_secret("--key-env" if key_env else KEY_VARIABLE, key_env or usual)
    except SettingsError as error:
        fail(str(error), code=USAGE)
    found = found.removesuffix("/v1")  # as people have it for their OpenAI clients
    if problem := address_problem(found):
        source = "--url" if url else URL_VARIABLE
        fail(f"{source}: {problem} Try http://127.0.0.1:7800", code=USAGE)
    return found, key


def _configured_url() -> str:
    """Return where `forebay serve` would listen if it were started here."""
    from forebay.settings import load_settings

    server = load_settings(None, ()).server
    return local_url(server, server.port or 7800)


def address_problem(url: str) -> str:
    """Return what is wrong with the address of a gateway, in a sentence; nothing where it is well.

    >>> address_problem("http://[::1]:7800"), address_problem("https://gate.example/llm")
    ('', '')
    >>> address_problem("http://127.0.0.1:99999")
    'http://127.0.0.1:99999 is not the address of a gateway: a port is from 1 to 65535.'
    >>> address_problem("http://me:secret@gate")
    'the address has a user or a password in it. Take it out; a key is named with --key-env VAR.'
    """
    from forebay.settings.addresses import DEFAULT_PORTS, split_url  # not for a list of options

    split = split_url(url)
    if "@" in url.partition("://")[2].partition("/")[0]:  # and it is not shown
        return (
            "the address has a user or a password in it. "
            "Take it out; a key is named with --key-env VAR."
        )
    if split is None:
        return f"{_shown(url)} is not the address of a gateway{_about_the_port(url)}."
    if split[0].scheme not in DEFAULT_PORTS:
        return f"{url} is not the address of a gateway: it begins with http:// or https://."
    if "?" in url or "#" in url:
        return (  # and it is not shown: a key may be in it
            "the address has a query or a fragment in it. "
            "Leave it out: an address ends with the port or a path."
        )
    return ""


def _about_the_port(url: str) -> str:
    """Say so where all would be well but for the port."""
    from forebay.settings.addresses import split_url

    scheme, mark, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    host, colon, _ = authority.rpartition(":")
    is_port = colon and mark and split_url(f"{scheme}://{host}{slash}{path}") is not None
    return ": a port is from 1 to 65535" if is_port else ""


def _shown(url: str) -> str:
    return url if url.isprintable() else ascii(url)
