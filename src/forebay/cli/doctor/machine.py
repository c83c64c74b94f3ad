"""What the machine itself gives: the port, the clock, the limit of open files."""

from __future__ import annotations

import errno
import json
import resource
import socket
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

import forebay
from forebay.cli.doctor.finding import RUNS, fine, problem, warning
from forebay.cli.invocation import EVERYWHERE, with_url
from forebay.cli.invocation import local_url as url_of
from forebay.cli.serve.start_failures import explain_listen_error
from forebay.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from forebay.cli.doctor.finding import Finding
    from forebay.settings import ServerSettings

ANSWER_S = 2.0
BODY_BYTES_MAX = 4096
TIME_SYNCED = Path("/run/systemd/timesync/synchronized")
TIME_DAEMON = Path("/run/systemd/timesync")
"""There where systemd keeps the time; other programs that do leave no sign."""
FILES_SPARE = 256
"""Open files besides connections of clients: databases, logs, nodes, a little room."""


def check_port(server: ServerSettings) -> Iterable[Finding]:
    """Try to listen where the gateway would."""
    place = f"{server.host}:{server.port}"
    try:
        found = socket.getaddrinfo(server.host or None, server.port, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        is_ours = error.errno == errno.EADDRINUSE and not server.tls_cert  # whose could we trust?
        host = "127.0.0.1" if server.host in EVERYWHERE else server.host
        if is_ours and (version := gateway_at(host, server.port)):
            look = with_url("status", url_of(server, server.port))
            yield fine("port", f"{RUNS} {place} (version {version}): {look}")
            return
        what, _, instead = explain_listen_error(error, server.host, server.port, "serve").partition(
            ". "
        )
        yield problem("port", what, instead)
        return
    yield fine("port", f"{place} is free")


def gateway_at(host: str, port: int) -> str:
    """Return the version of the gateway that listens there; nothing where it is none."""
    connection = HTTPConnection(host, port, timeout=ANSWER_S)
    try:
        connection.request("GET", "/health")
        told = json.loads(connection.getresponse().read(BODY_BYTES_MAX))
        return str(told["version"]) if told["status"] == "ok" else ""
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return ""
    finally:
        connection.close()


def check_clock() -> Iterable[Finding]:
    """Compare the clock with the date of our own files, and ask who keeps it right."""
    now = SystemClock().utc()
    made_s = Path(forebay.__file__).stat().st_mtime
    shown = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    if now.timestamp() < made_s - 86_400:
        yield problem(
            "clock",
            f"it says {shown}, which is before Forebay was installed",
            "set the clock, and synchronise it with NTP: timedatectl set-ntp true",
        )
    elif TIME_DAEMON.is_dir() and not TIME_SYNCED.exists():
        yield warning(
            "clock",
            f"it says {shown}, and is not synchronised",
            "synchronise it with NTP: timedatectl set-ntp true",
        )
    else:
        yield fine("clock", f"it says {shown}")


def check_file_limit(server: ServerSettings) -> Iterable[Finding]:
    """Compare the open files that are allowed with the connections that are."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = server.connections_max + FILES_SPARE
    if most != resource.RLIM_INFINITY and most < wanted:
        yield warning(
            "files",
            f"{most} files may be open, fewer than server.connections_max, "
            f"{server.connections_max}, needs",
            f"allow {wanted}: LimitNOFILE={wanted} under systemd, else ulimit -Hn {wanted}; or "
            "lower server.connections_max",
        )
    else:
        shown = "any number of" if most == resource.RLIM_INFINITY else most
        yield fine("files", f"{shown} files may be open")
