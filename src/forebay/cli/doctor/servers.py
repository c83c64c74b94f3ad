"""The servers that a gateway needs: nodes, databases, the store of several gateways."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.cli.config.checks import SQLITE, environment_risks
from forebay.cli.config.probe import probe
from forebay.cli.doctor.finding import fine, problem, warning
from forebay.clock import SystemClock
from forebay.settings import BadStoreUrl, NodeSettings, SettingsError
from forebay.settings.addresses import without_password

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from forebay.cli.config.probe import NodeProbe
    from forebay.cli.doctor.finding import Finding
    from forebay.settings import Settings

LIMIT_S = 5.0
FREE_BYTES_MIN = 1 << 30
APART_S = 2.0
"""Clocks of two machines may differ by so much before anybody notices."""


def check_nodes(settings: Settings) -> Iterable[Finding]:
    """Ask the nodes that are configured; else say what the gateway would use."""
    if settings.nodes:
        try:
            probed = probe(settings.nodes)
        except SettingsError:  # a key that is missing, which is told of with the settings
            return
        slots = {node.name: node.slots for node in settings.nodes}
        for each in probed:
            yield from _of_node(each, slots[each.name])
        return
    if settings.guard.token_env:
        yield fine("nodes", "none is configured; guards may register")
        return
    yield from _of_default_nodes()


def _of_default_nodes() -> Iterable[Finding]:
    from forebay.gateway import default_node
    from forebay.nodes import discovery

    found = asyncio.run(discovery.discover(discovery.http_fetch, discovery.LOOPBACK_URLS))
    for each in probe(NodeSettings(name=n.name, url=n.url, kind=n.kind) for n in found):
        yield from _of_node(each, "auto")
    if not found and default_node.has_llama_cpp():
        yield fine("nodes", "none was found here: the gateway would run a small model itself")
    elif not found:
        what, _, instead = default_node.no_model_hint(None).partition(". ")
        yield problem("nodes", what, " ".join(instead.split("\n")).rstrip("."))


def _of_node(node: NodeProbe, slots: int | str) -> Iterable[Finding]:
    if node.state not in ("online", "loading"):
        reason = node.error or "no answer"
        instead = f"start it, or correct {node.url} in [[nodes]]"
        yield problem("nodes", f"{node.name} does not answer: {reason}", instead)
        return
    if not node.models:
        instead = "load a model there"
        yield warning("nodes", f"{node.name} ({node.kind}) has no model", instead)
    else:
        models = ", ".join(node.models[:3]) + (", ..." if len(node.models) > 3 else "")
        yield fine("nodes", f"{node.name} ({node.kind}) is {node.state}: {models}")
    own = node.engine_slots
    if slots != "auto" and own is not None and int(slots) > own:
        yield warning(
            "slots",
            f"{node.name} has slots = {slots}, and its engine runs {own} at once: the rest "
            "waits in the engine, where the gateway cannot order it",
            f'write slots = {own}, or slots = "auto"; or let the engine run more',
        )
    elif own is not None:
        yield fine("slots", f"{node.name} runs {own} at once, as its engine reports")
    else:
        how = "found automatically" if slots == "auto" else f"{slots}, as the settings say"
        yield fine("slots", f"{node.name} does not report its slots: {how}")


def check_databases(settings: Settings) -> Iterable[Finding]:
    """Look at the file, or ask the server, that keeps jobs and sessions."""
    risks = {risk.key: risk for risk in environment_risks(settings)}
    urls = {
        "jobs.database": settings.jobs.database,
        "sessions.database": settings.sessions.database,
    }
    for key, url in urls.items():
        if not url:
            continue
        if risk := risks.get(key):
            is_lost = "can be kept" in risk.wrong
            yield (problem if is_lost else warning)(
                "database", f"{key}: {risk.wrong}", risk.instead
            )
        elif url.startswith(SQLITE):
            yield _of_file(key, Path(url.removeprefix(SQLITE).partition("?")[0]))
        elif url.startswith("postgres"):
            yield _of_postgres(key, url)


def _of_file(key: str, path: Path) -> Finding:
    folder = next(each for each in path.absolute().parents if each.exists())
    free = shutil.disk_usage(folder).free
    if path.is_file():
        try:
            with closing(
                sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
            ) as opened:
                opened.execute("PRAGMA schema_version").fetchone()
        except sqlite3.Error as error:
            instead = "restore it from a backup, or move it away to start with an empty one"
            return problem("database", f"{key}: {path} cannot be read: {error}", instead)
    if free < FREE_BYTES_MIN:
        instead = "make room, or name another folder"
        return warning("database", f"{key}: {free >> 20} MiB are free in {folder}", instead)
    state = "is well" if path.is_file() else "will be created when needed"
    return fine("database", f"{path} {state}")


def _of_postgres(key: str, url: str) -> Finding:
    shown = without_password(url)
    try:
        import psycopg
    except ImportError:
        from forebay.gateway.default_node import install_command

        return problem("database", f"{key}: no driver for PostgreSQL", install_command("postgres"))
    _, mark, rest = url.partition("://")
    try:
        with psycopg.connect(f"postgresql{mark}{rest}", connect_timeout=int(LIMIT_S)) as opened:
            row = opened.execute("SELECT now()").fetchone()
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        instead = f"start PostgreSQL, or correct {key}"
        return problem("database", f"{shown} cannot be used: {reason}", instead)
    return _answered("database", shown, row[0] if row else None)


def check_store(url: str) -> Iterable[Finding]:
    """Ask the store of several gateways."""
    if not url:
        return
    try:
        from forebay.coordination.store.valkey import connect
    except ImportError:
        from forebay.gateway.default_node import install_command

        yield problem("store", "no driver for Valkey or Redis", install_command("redis"))
        return
    shown = without_password(url)
    try:
        now_s = asyncio.run(_time_of(connect, url))
    except BadStoreUrl as error:
        yield problem("store", f"coordination.url {error.wrong}", error.instead)
        return
    except (OSError, TimeoutError) as error:
        found = f"{shown} cannot be used: {str(error) or 'no answer'}"
        yield problem("store", found, "start it, or correct coordination.url")
        return
    yield _apart("store", shown, now_s)


async def _time_of(connect: Any, url: str) -> float:
    """Return the store's clock; raises OSError where it cannot be asked."""
    from redis.exceptions import RedisError

    client = connect(url)
    try:
        async with asyncio.timeout(LIMIT_S):
            seconds, micros = await client.time()
    except RedisError as error:
        raise OSError(str(error)) from error
    finally:
        await client.aclose()
    return float(seconds) + float(micros) / 1e6


def _answered(check: str, shown: str, now: datetime | None) -> Finding:
    if now is None:
        return fine(check, f"{shown} answers")
    return _apart(check, shown, now.timestamp())


def _apart(check: str, shown: str, now_s: float) -> Finding:
    """Compare a server's clock with ours."""
    apart_s = abs(SystemClock().utc().timestamp() - now_s)
    if apart_s > APART_S:
        found = f"{shown} answers, but its clock and this machine's are {apart_s:.0f} s apart"
        return warning(check, found, "synchronise both clocks with NTP: timedatectl set-ntp true")
    return fine(check, f"{shown} answers")
