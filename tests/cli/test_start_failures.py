"""A server that cannot start says why, and what to do next."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from typing import TYPE_CHECKING

import pytest

from forebay.cli.serve.start_failures import explain_listen_error, explain_start_error
from forebay.settings import ServerSettings
from harness.preloaded import run_command

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import CompletedProcess


def serve(*words: str, cwd: Path) -> CompletedProcess[str]:
    return run_command("serve", *words, cwd=cwd)


def test_a_port_that_is_taken_comes_with_another_and_a_way_to_look(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = serve("--port", str(port), cwd=tmp_path)
    assert done.returncode == 1
    assert f"forebay serve --port {port + 1 if port < 65535 else port - 1}" in done.stderr
    assert f"forebay status --url http://127.0.0.1:{port}" in done.stderr
    assert "server.port" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_of_another_machine_comes_with_those_there_are(tmp_path: Path) -> None:
    done = serve("--port", "0", "--host", "192.0.2.1", cwd=tmp_path)
    assert done.returncode == 1
    assert "no such address" in done.stderr
    assert "--host 127.0.0.1" in done.stderr


def test_certificates_that_cannot_be_used_are_a_matter_of_the_settings(tmp_path: Path) -> None:
    words = ("--port", "0", "--set", "server.tls_cert=c.pem", "--set", "server.tls_key=k.pem")
    done = serve(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "server.tls_cert: c.pem cannot be read: No such file" in done.stderr
    for name in ("c.pem", "k.pem"):
        (tmp_path / name).write_text("not a certificate\n")
    done = serve(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "PEM" in done.stderr


def test_bad_settings_come_with_the_line_and_the_command_that_checks_them(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[queue]\n\nmax_sise = 3\n")
    done = serve("--config", "mine.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "queue.max_sise (file mine.toml:3)" in done.stderr
    assert "did you mean queue.max_size?" in done.stderr
    assert "forebay config check mine.toml" in done.stderr


@pytest.mark.parametrize(
    ("code", "port", "part"),
    [
        (errno.EACCES, 80, "forebay serve --port 7080"),
        (errno.EADDRINUSE, 65535, "forebay serve --port 65534"),
        (errno.EADDRNOTAVAIL, 7800, "--host 0.0.0.0"),
        (errno.EMFILE, 7800, "Too many open files"),
    ],
)
def test_each_reason_has_its_own_way_out(code: int, port: int, part: str) -> None:
    error = OSError(code, os.strerror(code))
    assert part in explain_listen_error(error, "127.0.0.1", port, "serve")


def test_an_address_with_colons_is_written_as_in_a_url() -> None:
    why = explain_start_error(OSError(errno.EADDRINUSE, "taken"), ServerSettings(host="::1"))
    assert "http://[::1]:7800" in why.words
    assert not why.is_in_the_settings


def test_a_reason_of_tls_is_told_only_where_it_is_one(tmp_path: Path) -> None:
    for name in ("cert", "key"):
        (tmp_path / name).touch()
    server = ServerSettings(tls_cert=str(tmp_path / "cert"), tls_key=str(tmp_path / "key"))
    assert explain_start_error(ssl.SSLError(1, "[X] wrong"), server).is_in_the_settings
    assert (
        "another program" in explain_start_error(OSError(errno.EADDRINUSE, "taken"), server).words
    )
