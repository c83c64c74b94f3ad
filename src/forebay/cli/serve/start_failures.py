"""Why a server did not start, and what to do about it."""

from __future__ import annotations

import errno
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from forebay.cli.invocation import as_called, bracketed, local_url, with_url

if TYPE_CHECKING:
    from forebay.settings import ServerSettings

FIRST_FREE_PORT = 1024
"""Below it, ports are for root on most systems."""


def explain_listen_error(error: OSError, host: str, port: int, command: str) -> str:
    """Say why an address cannot be listened on; `command` is the verb to try with another port."""
    place = f"{bracketed(host)}:{port}"
    if error.errno == errno.EADDRINUSE:
        other = port + 1 if port < 65535 else port - 1
        return (
            f"cannot listen on {place}: another program does. Use another port: "
            f"{as_called(command)} --port {other}."
        )
    if error.errno in (errno.EACCES, errno.EPERM) and port < FIRST_FREE_PORT:
        return (
            f"cannot listen on {place}: ports below {FIRST_FREE_PORT} need more privileges. "
            f"Use another port: {as_called(command)} --port {port + 7000}."
        )
    if error.errno == errno.EADDRNOTAVAIL or error.errno is None or error.errno < 0:
        return (
            f"cannot listen on {place}: this machine has no such address. Try --host 127.0.0.1 "
            "for this machine only, or --host 0.0.0.0 for every network it is in."
        )
    return f"cannot listen on {place}: {error.strerror or error}. Try another --port or --host."


class StartFailure(NamedTuple):
    """Why something did not start."""

    words: str
    is_in_the_settings: bool


def explain_start_error(error: OSError, server: ServerSettings) -> StartFailure:
    """Say why the gateway did not start."""
    if server.tls_cert and (problem := _about_tls(error, server)):
        return StartFailure(problem, True)
    words = explain_listen_error(error, server.host, server.port, "serve")
    if error.errno == errno.EADDRINUSE:
        look = with_url("status", local_url(server, server.port))
        words += f" If that is Forebay already, `{look}` shows it."
    return StartFailure(f"{words} In the settings: server.port, server.host.", False)


def _about_tls(error: OSError, server: ServerSettings) -> str:
    for key, path in (("tls_cert", server.tls_cert), ("tls_key", server.tls_key)):
        try:
            Path(path).open("rb").close()
        except OSError as unreadable:
            reason = unreadable.strerror or str(unreadable)
            wrong = f"server.{key}: {path} cannot be read: {reason}."
            return f"{wrong} Correct the path or its permissions."
    if not isinstance(error, ssl.SSLError):
        return ""
    wrong, instead = explain_tls_error(error)
    return f"server.tls_cert, server.tls_key: {wrong}; {instead}."


def explain_tls_error(error: OSError) -> tuple[str, str]:
    """Say what is wrong with a certificate and its key, and what they must be."""
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    return (
        f"the certificate and its key cannot be used: {reason.replace('_', ' ').lower()}",
        "both must be PEM files, the certificate before its chain, the key without a password and "
        "of the same certificate",
    )
