"""How this program was called, for the commands that it prints."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.settings import ServerSettings

NAME = "forebay"
EVERYWHERE = ("0.0.0.0", "::", "")
"""Hosts that are no address to connect to: the server listens on all that this machine has."""
DEFAULT_URLS = ("http://127.0.0.1:7800", "http://localhost:7800")
"""Where every command looks by itself."""
_flags: ContextVar[str] = ContextVar("flags of the gateway", default="")


def as_called(words: str) -> str:
    """Return a command of this program as it can be typed here: `forebay`, or the path to it.

    In a clone there is only `.venv/bin/forebay`, and another one may come first on the PATH.
    """
    called = sys.argv[0]
    if os.path.basename(called) != NAME or _is_first_on_path(called):
        return f"{NAME} {words}"
    return f"{shlex.quote(called)} {words}"


def asked_with(url: str | None, key_env: str) -> None:
    """Remember by which flags the gateway of this command was named."""
    flags = [("--url", url or ""), ("--key-env", key_env)]
    _flags.set("".join(f" {flag} {shlex.quote(value)}" for flag, value in flags if value))


def at_gateway(words: str) -> str:
    """Return another command for the gateway of this one, named by the same flags."""
    return as_called(words) + _flags.get()


def with_url(words: str, url: str) -> str:
    """Return a command for the gateway at this address, which is named where it must be."""
    return as_called(words if url in DEFAULT_URLS else f"{words} --url {url}")


def bracketed(host: str) -> str:
    """Return a host as it is in a URL.

    >>> bracketed("::1"), bracketed("localhost")
    ('[::1]', 'localhost')
    """
    return f"[{host}]" if ":" in host else host


def local_url(server: ServerSettings, port: int, loopback: str = "127.0.0.1") -> str:
    """Return the address at which this machine reaches a gateway with these settings."""
    host = loopback if server.host in EVERYWHERE else server.host
    return f"{'https' if server.tls_cert else 'http'}://{bracketed(host)}:{port}"


def _is_first_on_path(called: str) -> bool:
    found = shutil.which(NAME)
    try:
        return found is not None and os.path.samefile(found, called)
    except OSError:
        return True  # it is gone meanwhile: its name is as good as its path
