"""Sessions on PostgreSQL that fails: nothing of what was said is in any log."""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text

from .session_faults import until_refused, written
from .session_steps import Http, answer, new_session, prompt, started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from ..conftest import Rig

SECRET = "a secret of the client's"
IMPATIENT = "options=-c%20lock_timeout%3D100"


@pytest.fixture
def other(postgres_url: str) -> Iterator[Connection]:
    """Somebody else's connection."""
    engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://", 1))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def lock(other: Connection) -> None:
    other.execute(text("LOCK TABLE session_prompts IN ACCESS EXCLUSIVE MODE"))


def impatient(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{IMPATIENT}"


async def test_no_text_is_logged_when_prompts_and_answers_cannot_be_written(
    rig: Rig, postgres_url: str, other: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    node = await started(rig, slots=3, sessions={"database": impatient(postgres_url)})
    sessions = [await new_session(rig, system=SECRET) for _ in range(3)]
    calls = []
    for session in sessions:
        await prompt(rig, session, SECRET)
        calls.append(await node.next_call())
    await written(rig)
    lock(other)
    for call in calls:
        await answer(call, SECRET)
    await until_refused(rig, caplog)
    refused = await Http(rig).prompt(sessions[0], prompt=SECRET)
    assert (refused.number, refused.code) == (503, "store_unavailable")
    assert (await Http(rig).cancel(sessions[1])).number == 503
    await rig.gateway.stop(0.0)
    other.rollback()
    gc.collect()  # what nobody has asked for is told of when it is thrown away
    assert SECRET not in caplog.text
    assert "never retrieved" not in caplog.text


async def test_no_text_is_logged_when_the_connection_is_cut(
    rig: Rig, postgres_url: str, other: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    node = await started(rig, sessions={"database": postgres_url})
    session = await new_session(rig)
    await prompt(rig, session, SECRET)
    call = await node.next_call()
    await written(rig)
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    other.execute(
        text(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}")
    )
    other.rollback()
    await answer(call, SECRET)
    for _ in range(3):
        await Http(rig).prompt(session, prompt=SECRET)
    await rig.gateway.stop(0.0)
    gc.collect()
    assert SECRET not in caplog.text
    assert "never retrieved" not in caplog.text
