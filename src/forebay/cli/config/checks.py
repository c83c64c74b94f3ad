"""Check that the secrets, files, folders and servers that the settings name exist."""

from __future__ import annotations

import os
import ssl
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.cli.serve.start_failures import explain_tls_error
from forebay.settings import (
    Settings,
    SettingsError,
    SettingsProblem,
    node_api_key,
    read_secret,
    resolve_keys,
)
from forebay.settings.places import state_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SQLITE = "sqlite:///"
IN_MEMORY = ("tmpfs", "ramfs")
MOUNTS = Path("/proc/self/mounts")
"""Only Linux has it; elsewhere nothing is said about kinds of disks."""


def environment_problems(settings: Settings) -> list[SettingsProblem]:
    """Return what is missing, without which the gateway would not do what the settings say."""
    return [*_files(settings), *_secrets(settings)]


def environment_risks(settings: Settings) -> list[SettingsProblem]:
    """Return what does not keep the gateway from starting, but will surprise somebody."""
    urls = {
        "jobs.database": settings.jobs.database,
        "sessions.database": settings.sessions.database,
    }
    return [
        SettingsProblem(key, *found)
        for key, url in urls.items()
        if url.startswith("sqlite:") and (found := _about_file(url))
    ]


def _files(settings: Settings) -> Iterable[SettingsProblem]:
    missing = False
    for key in ("tls_cert", "tls_key"):
        path = getattr(settings.server, key)
        if path and not Path(path).is_file():
            missing = True
            yield SettingsProblem(f"server.{key}", f"there is no file {path}", "correct the path")
        elif path and not os.access(path, os.R_OK):
            missing = True
            yield SettingsProblem(f"server.{key}", f"{path} cannot be read", "correct its rights")
    if settings.server.tls_cert and not missing:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(settings.server.tls_cert, settings.server.tls_key)
        except OSError as error:  # an SSLError is one
            yield SettingsProblem("server.tls_cert", *explain_tls_error(error))


def _secrets(settings: Settings) -> Iterable[SettingsProblem]:
    variables = {
        "jobs.webhook_secret_env": settings.jobs.webhook_secret_env,
        "guard.token_env": settings.guard.token_env,
    }
    attempts: list[Callable[[], object]] = [
        partial(resolve_keys, settings),
        *(partial(node_api_key, node) for node in settings.nodes),
        *(partial(read_secret, key, variable) for key, variable in variables.items()),
    ]
    for attempt in attempts:
        try:
            attempt()
        except SettingsError as error:
            yield from error.problems


def _about_file(url: str) -> tuple[str, str] | None:
    """Return what is wrong with where a SQLite database is, and what to do; None if nothing is."""
    path = url.removeprefix(SQLITE).partition("?")[0]
    if path in ("", ":memory:") or not url.startswith(SQLITE):
        return (
            "is in memory: its data is lost when the gateway stops",
            "name a file: sqlite:///forebay.db",
        )
    folder = Path(path).absolute().parent
    if folder == state_folder():  # the gateway makes it
        folder = next(each for each in (folder, *folder.parents) if each.exists())
    if not folder.is_dir():
        return (
            f"the folder {folder} does not exist: jobs and sessions cannot be stored",
            f"create it: mkdir -p {folder}",
        )
    if not os.access(folder, os.W_OK):
        return (
            f"the current user may not write to {folder}: jobs and sessions cannot be stored",
            "correct its permissions, or name another folder",
        )
    if (kind := _kind_of_disk(folder)) in IN_MEMORY:
        return (
            f"{folder} is in memory ({kind}): a reboot loses every job and session in it",
            "name a file on a disk",
        )
    return None


def _kind_of_disk(folder: Path) -> str:
    """Return the kind of the file system that a folder is on; nothing where that is not known."""
    try:
        mounts = MOUNTS.read_text(errors="replace")
        place = folder.resolve()
    except OSError:
        return ""
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = Path(fields[1].replace("\\040", " "))
        if place.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return kind
