"""Asking a running gateway: what `status` and `nodes` have in common.

Over `http.client`, not `urllib.request`: that would ask a proxy if the environment names one, and
a gateway on this machine is not behind it. Bounded in time and size.
"""

from __future__ import annotations

import http.client
import ssl
from typing import Annotated, Any, NoReturn
from urllib.parse import urlsplit

import msgspec
import typer

from forebay.cli.console import fail
from forebay.settings import SettingsError, load_settings, read_secret

NOT_REACHABLE = 3
LIMIT_S = 10.0
"""A gateway answers these from memory; one that does not is not well."""
BYTES_MAX = 16_777_216

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

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class GatewayClient:
    """Asks one gateway; every failure to reach it ends the command with a way out."""

    def __init__(self, url: str | None, key_env: str) -> None:
        try:
            self.url = (url or _configured_url()).rstrip("/")
            key = read_secret("--key-env", key_env)
        except SettingsError as error:
            fail(str(error), code=2)
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._has_key = key is not None
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            fail(f"{self.url} is not the address of a gateway. Try http://127.0.0.1:7800", code=2)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer; raises GatewayRefused."""
        status, content = self._exchange(method, path, body)
        try:
            answer = msgspec.json.decode(content) if content else None
        except msgspec.DecodeError:
            answer = None
        if status < 300 and (answer is not None or not content):
            return answer
        error = answer.get("error") if isinstance(answer, dict) else None
        if not isinstance(error, dict) or not isinstance(error.get("code"), str):
            fail(
                f"what answers at {self.url} is not a Forebay gateway ({status} for {path}). "
                "Name the gateway with --url.",
                code=NOT_REACHABLE,
            )
        raise GatewayRefused(status, error["code"], printable(str(error.get("message"))))

    def insist(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer, or end the command with the gateway's own message."""
        try:
            return self.ask(method, path, body)
        except GatewayRefused as refused:
            self.give_up(refused)

    def give_up(self, refused: GatewayRefused) -> NoReturn:
        """End the command with the gateway's own message, and what to do about it."""
        hint = ""
        if refused.status in (401, 403):
            key = "another key" if self._has_key else "a key"
            hint = f" Name {key} with --key-env VAR."
        fail(f"the gateway says: {refused} ({refused.code}).{hint}")

    def _exchange(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        content = None if body is None else msgspec.json.encode(body)
        headers = self._headers | ({"content-type": "application/json"} if content else {})
        kind = http.client.HTTPSConnection if parts.scheme == "https" else None
        connection = (kind or http.client.HTTPConnection)(parts.netloc, timeout=LIMIT_S)
        try:
            connection.request(method, parts.path + path, content, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(BYTES_MAX)
        except (OSError, http.client.HTTPException, ssl.SSLError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            fail(
                f"no gateway answers at {self.url} ({reason}). "
                "Start one with: forebay serve. Or name it with --url.",
                code=NOT_REACHABLE,
            )
        finally:
            connection.close()


def printable(text: object) -> str:
    """Return text that a node or gateway gave us, fit for a terminal.

    >>> printable("m\\x1b[2J")
    'm?[2J'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def _configured_url() -> str:
    """Return where `forebay serve` would listen if it were started here."""
    server = load_settings(None, ()).server
    host = "127.0.0.1" if server.host in ("0.0.0.0", "::", "") else server.host
    scheme = "https" if server.tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{server.port or 7800}"
