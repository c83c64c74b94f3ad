"""Asking a running gateway: what all commands that do so have in common.

Over `http.client`, not `urllib.request`: that would ask a proxy if the environment names one, and
a gateway on this machine is not behind it. Bounded in time and size.
"""

from __future__ import annotations

import http.client
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

import msgspec
import typer

from forebay.cli.exits import FAILED, NOT_ALLOWED, NOT_REACHABLE, USAGE
from forebay.cli.exits import INTERRUPTED as INTERRUPTED
from forebay.cli.gateway_address import address_problem
from forebay.cli.invocation import as_called
from forebay.cli.output.console import fail
from forebay.cli.output.text import harmless as harmless
from forebay.cli.output.text import printable as printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from email.message import Message

LIMIT_S = 10.0
"""A gateway answers these from memory; one that does not is not well."""
BYTES_MAX = 67_108_864
"""A job may hold 8 MiB of params and 16 MiB of result, and text may grow in JSON."""
LINE_BYTES_MAX = 1_048_576

GatewayUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="Where the gateway is; else as ./forebay.toml and FOREBAY_* say, "
        "http://127.0.0.1:7800 by default.",
        show_default=False,
    ),
]
KeyEnv = Annotated[
    str,
    typer.Option(
        "--key-env",
        metavar="VAR",
        help="Environment variable with the key to use, where the gateway wants one.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class GatewayRefused(Exception):
    """The gateway answered with an error; the text is its own message."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.hint = hint
        """What the gateway says can be done about it."""

    @property
    def is_about_the_key(self) -> bool:
        """Whether another key may help."""
        return self.status in (401, 403) and self.code != "forbidden_host"


class GatewayAway(Exception):
    """Nothing answers, or what answers is no gateway; the text says what to do."""


class Senseless(GatewayAway):
    """What answers says what no gateway says; asking again does not help."""


class Answer(NamedTuple):
    """What the gateway said."""

    value: Any
    headers: Message


class Reply:
    """An answer that is read piece by piece; every failure to read is `GatewayAway`."""

    def __init__(self, response: http.client.HTTPResponse, url: str) -> None:
        self._response = response
        self._url = url
        self.headers: Message = response.headers

    def read(self, bytes_max: int) -> bytes:
        """Return the next piece, empty at the end; raises GatewayAway."""
        with _translated(self._url):
            return self._response.read(bytes_max)

    def lines(self) -> Iterator[bytes]:
        """Yield the lines as they come, cut at LINE_BYTES_MAX; raises GatewayAway."""
        while True:
            with _translated(self._url):
                line = self._response.readline(LINE_BYTES_MAX)
            if not line:
                return
            yield line


class GatewayClient:
    """Asks one gateway. `ask` and `insist` end the command where none can be reached."""

    def __init__(self, url: str | None, key_env: str) -> None:
        self.url, key = where_and_key(url, key_env)
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._has_key = key is not None

    def ask(self, method: str, path: str, body: object = None, *, shape: object) -> Any:
        """Return the answer, which has a shape of `shapes.py`; raises GatewayRefused."""
        try:
            return self.attempt(method, path, body, shape=shape).value
        except GatewayAway as away:
            fail(str(away), code=NOT_REACHABLE)

    def insist(self, method: str, path: str, body: object = None, *, shape: object) -> Any:
        """Return the answer, or end the command with the gateway's own message."""
        try:
            return self.ask(method, path, body, shape=shape)
        except GatewayRefused as refused:
            self.give_up(refused)

    def attempt(self, method: str, path: str, body: object = None, *, shape: object) -> Answer:
        """Return the answer and its headers; raises GatewayRefused and GatewayAway."""
        content = None if body is None else msgspec.json.encode(body)
        headers = {"content-type": "application/json"} if content else {}
        with self.opened(method, path, content, headers) as reply:
            return self.read_answer(reply, path, shape)

    def read_answer(self, reply: Reply, path: str, shape: object) -> Answer:
        """Return an answer that is JSON of this shape; raises GatewayAway."""
        content = reply.read(BYTES_MAX)
        try:
            value = msgspec.json.decode(content) if content else None
        except (msgspec.DecodeError, RecursionError):
            raise self._no_gateway(200, path) from None
        return Answer(checked(value, shape), reply.headers)

    @contextmanager
    def opened(
        self,
        method: str,
        path: str,
        content: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        limit_s: float = LIMIT_S,
    ) -> Iterator[Reply]:
        """Send a request and hand out its reply, unread; raises GatewayRefused and GatewayAway.

        `limit_s` bounds each wait for the network, not the whole.
        """
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else None
        connection = (kind or http.client.HTTPConnection)(parts.netloc, timeout=limit_s)
        try:
            with _translated(self.url):
                try:
                    sent = self._headers | dict(headers or {})
                    connection.request(method, parts.path + path, content, sent)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # it may have answered before it had read everything: look
                response = connection.getresponse()
            reply = Reply(response, self.url)
            if response.status >= 300:
                self._refuse(response.status, reply.read(BYTES_MAX), path)
            yield reply
        finally:
            connection.close()

    def give_up(self, refused: GatewayRefused) -> NoReturn:
        """End the command with the gateway's own message, and what to do about it."""
        code = NOT_ALLOWED if refused.is_about_the_key else FAILED
        fail(
            f"the gateway says: {ended(str(refused))} ({refused.code}).{self.hint(refused)}",
            code=code,
        )

    def hint(self, refused: GatewayRefused) -> str:
        """Return what to do about a refusal, where that is known."""
        if not refused.is_about_the_key:
            return f" {refused.hint}" if refused.hint else ""
        return f" Name {'another key' if self._has_key else 'a key'} with --key-env VAR."

    def _refuse(self, status: int, content: bytes, path: str) -> NoReturn:
        try:
            answer = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError):
            answer = None
        error = answer.get("error") if isinstance(answer, dict) else None
        if not isinstance(error, dict) or not isinstance(error.get("code"), str):
            raise self._no_gateway(status, path)
        message, hint = (printable(str(error.get(name) or "")) for name in ("message", "hint"))
        raise GatewayRefused(status, printable(error["code"]), message, hint)

    def _no_gateway(self, status: int, path: str) -> GatewayAway:
        # A proxy may answer so while the gateway behind it is started again.
        kind = GatewayAway if status >= 500 or status == 404 else Senseless
        return kind(
            f"what answers at {self.url} is not a Forebay gateway ({status} for {path}). "
            "Name the gateway with --url."
        )


def checked(value: Any, shape: object) -> Any:
    """Return a value as it came if it has the shape; raises Senseless."""
    try:
        msgspec.convert(value, shape)
    except (msgspec.ValidationError, RecursionError) as error:
        raise senseless(str(error)) from None
    return value


def senseless(why: str) -> Senseless:
    """Return the complaint about an answer that no gateway gives."""
    return Senseless(
        f"the gateway's answer makes no sense: {printable(why)}; is this Forebay? "
        "Name the gateway with --url."
    )


def where_and_key(url: str | None, key_env: str) -> tuple[str, str | None]:
    """Return the gateway's address and the key to use, or end the command with what is wrong."""
    from forebay.settings import SettingsError, read_secret  # not for a list of options

    try:
        asked = url or _configured_url()
        found = (asked if "://" in asked else f"http://{asked}").rstrip("/")
        key = read_secret("--key-env", key_env)
    except SettingsError as error:
        fail(str(error), code=USAGE)
    found = found.removesuffix("/v1")  # as people have it for their OpenAI clients
    if problem := address_problem(found):
        fail(f"--url: {problem} Try http://127.0.0.1:7800", code=USAGE)
    return found, key


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Turn every failure of the network into `GatewayAway`."""
    try:
        yield
    except (OSError, http.client.HTTPException, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise GatewayAway(
            f"no gateway answers at {url} ({reason}). "
            f"Start one with: {as_called('serve')}. Or name it with --url."
        ) from error


def ended(text: str) -> str:
    """Return a message without the full stop at its end, for a sentence around it."""
    return text.rstrip(".")


def _configured_url() -> str:
    """Return where `forebay serve` would listen if it were started here."""
    from forebay.settings import load_settings

    server = load_settings(None, ()).server
    host = "127.0.0.1" if server.host in ("0.0.0.0", "::", "") else server.host
    scheme = "https" if server.tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{server.port or 7800}"
