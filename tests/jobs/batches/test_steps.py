"""Batches across restarts, crashes and several gateways; their bounds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from forebay.jobs.batches import batch
from forebay.jobs.batches import steps as batch_steps
from forebay.jobs.batches.batch import NotCancellable
from forebay.jobs.batches.file import Listing
from forebay.jobs.batches.steps import Interrupted
from harness.preloaded import PipedProgram

from ..desk import Desk, counts, line

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.jobs.batches.batch import StoredBatch


# -- restarts and several gateways


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_loading_goes_on_where_it_stopped(
    open_desk: Callable[..., Desk], chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_steps, "CHUNK_LINES", 2)
    first = open_desk()
    made = first.stop_while_loading(7, chunks)
    assert len(first.rows()) == 2 * chunks
    first.run(1)
    second = open_desk(keeper="k2")
    second.move_on()
    assert [row[0] for row in second.rows()] == [f"c{i}" for i in range(7)]
    second.run()
    second.move_on()
    assert counts(second.get(made)) == ("completed", 7, 7, 0)


def test_long_lines_are_loaded_a_few_at_a_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_steps, "CHUNK_BYTES", 300)
    sizes: list[int] = []
    real = batch_steps._add_lines

    def counted(connection: Any, found: StoredBatch, lines: list[Any]) -> Any:
        sizes.append(len(lines))
        return real(connection, found, lines)

    monkeypatch.setattr(batch_steps, "_add_lines", counted)
    desk.create([line(f"c{i}") for i in range(7)])
    desk.move_on()
    assert sum(sizes) == 7
    assert max(sizes) <= 3


def test_finalizing_again_writes_the_same_and_leaves_no_rubbish(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = desk.create([line("a"), line("b")])
    desk.move_on()
    desk.run()
    written: list[bytes] = []
    real = batch_steps.BatchSteps._finish

    def crash(self: Any, connection: Any, found: StoredBatch, files: batch_steps.Written) -> bool:
        assert files.output is not None
        written.append(desk.files.path(files.output.name).read_bytes())
        if len(written) == 1:
            raise InterruptedError
        return real(self, connection, found, files)

    monkeypatch.setattr(batch_steps.BatchSteps, "_finish", crash)
    with pytest.raises(InterruptedError):
        desk.move_on()
    assert desk.get(made).status == "finalizing"
    with pytest.raises(NotCancellable):
        desk.batches.cancel(made.name, "")
    desk.move_on()
    assert desk.get(made).status == "completed"
    assert written[0] == written[1]
    page = desk.files.list("", Listing()).result()
    assert page is not None
    assert len(page.files) == 2
    if desk.database.is_sqlite:
        desk.files.open()
        assert len(list(desk.files.folder.iterdir())) == 2


def test_two_gateways_do_not_work_on_one_batch(open_desk: Callable[..., Desk]) -> None:
    first, second = open_desk(keeper="k1"), open_desk(keeper="k2")
    made = first.create([line("a")])
    assert first.steps._take(made.id) is not None
    assert second.steps.due().result()[0] == []
    assert second.steps._take(made.id) is None
    second.steps.advance(made.id)
    assert first.get(made).status == "validating"
    assert first.steps.renew(made.id).result() is True
    assert second.steps.renew(made.id).result() is False
    first.sql("UPDATE batches SET keeper_until = keeper_until - 3600")
    second.steps.advance(made.id)
    assert first.get(made).status == "in_progress"


def test_whoever_lost_the_lease_changes_nothing_more(open_desk: Callable[..., Desk]) -> None:
    first, second = open_desk(keeper="k1"), open_desk(keeper="k2")
    made = first.create([line("a"), line("b")])

    def lose(owner: str, model: str) -> bool:
        first.sql("UPDATE batches SET keeper_until = keeper_until - 3600")
        assert second.steps._take(made.id) is not None
        return True

    first.steps._may_use = lose
    first.steps.advance(made.id)
    assert first.get(made).status == "validating"
    second.steps.advance(made.id)
    second.run()
    second.sql("UPDATE batches SET keeper = 'k1', keeper_until = keeper_until + 3600")
    found = first.get(made)
    begun = first.steps._begin_finalizing(found)
    assert begun is not None
    first.sql("UPDATE batches SET keeper = 'k2'")
    with pytest.raises(Interrupted):
        first.steps._finalize(begun)
    assert {path.name for path in first.files.folder.iterdir()} == {made.input_file}
    assert len(first.rows()) == 2


def test_beside_sqlite_a_crashed_keeper_s_lease_is_void(desk: Desk) -> None:
    made = desk.create([line("a")])
    desk.sql("UPDATE batches SET keeper = 'dead', keeper_until = created_at + 3600")
    desk.steps.forget_keepers()
    assert desk.steps.due().result()[0] == ([made.id] if desk.database.is_sqlite else [])


# -- bounds


def in_a_new_program(script: str, *arguments: str) -> Any:
    """Run it with memory of its own, which it measures."""
    done = subprocess.run(
        [sys.executable, "-m", f"jobs.batches.{script}", *arguments],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def in_a_forked_program(script: str, *arguments: str) -> Any:
    child = PipedProgram(f"tests.jobs.batches.{script}", *arguments)
    try:
        said = child.communicate(limit_s=300)
    finally:
        child.kill()
    assert child.returncode == 0
    return json.loads(said)


@pytest.mark.parametrize("lines", [5_000, pytest.param(50_000, marks=pytest.mark.long)])
def test_a_large_batch_is_never_in_memory_at_once(
    sqlite_url: str, tmp_path: Path, lines: int
) -> None:
    """As many bytes in fewer lines, and the most lines there may be."""
    files = str(tmp_path / "files")
    seen = in_a_new_program("large_batch", sqlite_url, files, str(lines))
    assert seen["counts"] == ["completed", lines, lines, 0]
    assert seen["in_order"] is True
    assert seen["input_bytes"] > 50_000_000
    assert seen["grown_bytes"] < 40_000_000


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.long) for n in (2, 3))])
def test_a_batch_survives_kill_9_at_any_point(database_url: str, tmp_path: Path, seed: int) -> None:
    seen = in_a_forked_program("many_lives", database_url, str(tmp_path / "files"), str(seed))
    assert seen["killed"] >= 5, "it must have been killed in the middle to show anything"
    assert seen["counts"] == ["completed", 60, 60, 0]
    assert seen["answers"] == [f"c{i}" for i in range(60)]
    assert seen["rows"] == 0
    assert seen["files"] == 2
    assert seen["files_with_rows"] == 2


def test_long_answers_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_steps, "PAGE_BYTES_MAX", 100)
    assert list(batch_steps._ends([(1, 60), (2, 40), (3, 1), (7, 500), (8, 0)])) == [2, 3, 7, 8]
    assert list(batch_steps._ends([])) == []
    assert list(batch_steps._ends([(1, 500)])) == [1]


def test_a_window_of_two_weeks_is_the_longest() -> None:
    assert batch.window_s("14d") == batch.window_s("336h") == batch.WINDOW_S_MAX
