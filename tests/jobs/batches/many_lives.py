"""A program of its own that runs a batch to its end, killed again and again on the way.

Each life is a forked process that does what a gateway does and kills itself (SIGKILL) at a moment
that the seed chooses: before or after a commit, between two lines, before or after a file gets
its name. The next life goes on with what it finds, and first checks that no line is missing.
Seed 0 begins with every line done, and dies at each moment of what is left, one after the other.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.jobs.batches import steps as batch_steps
from forebay.jobs.batches.files import FolderUpload
from forebay.jobs.batches.steps import BatchSteps
from forebay.jobs.store.recovery import Recovery
from forebay.storage.database import Database

from ..desk import Desk, counts, line

if TYPE_CHECKING:
    from collections.abc import Callable

LINES = 60
MOMENTS_MAX = 100
LIVES_MAX = 500
ANY_NUMBER = 1_000_000


def mortal(moments: int, *, between_lines: bool) -> None:
    """Have this process die after so many moments; those between two lines count or do not."""
    left = (moments + 1) // 2

    def moment() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            moment()
            result = real(*arguments)
            moment()
            return result

        return wrapped

    Database._commit = around(Database._commit)  # type: ignore[method-assign]
    if between_lines:
        BatchSteps._check_stopping = around(BatchSteps._check_stopping)  # type: ignore[method-assign]
    FolderUpload.keep = around(FolderUpload.keep)  # type: ignore[method-assign]


def live(url: str, folder: Path, moments: int) -> None:
    """Do what a gateway does, until the batch is done or death comes."""
    mortal(moments, between_lines=moments % 2 == 1)
    desk = Desk(url, folder)
    desk.steps.forget_keepers()
    desk.store.recover(Recovery(retry=True, attempts=ANY_NUMBER)).result()
    ((status, behind),) = desk.sql("SELECT status, cursor_line FROM batches")
    if status == "in_progress":
        assert [row[0] for row in desk.rows()] == [f"c{i}" for i in range(behind)]
    while desk.steps.due().result()[0] or desk.run(3):
        desk.move_on()
    desk.close()


def main(url: str, folder_name: str, seed: str) -> None:
    chance = random.Random(int(seed))
    folder = Path(folder_name)
    batch_steps.CHUNK_LINES = 7
    first = Desk(url, folder)
    made = first.create([line(f"c{i}") for i in range(LINES)])
    if seed == "0":
        first.move_on()
        first.run()
        first.sql("UPDATE batches SET status = 'finalizing'")
    first.close()
    killed = 0
    for _ in range(LIVES_MAX):
        # Short lives die in the few commits that end a batch; long ones get it there.
        is_short = chance.random() < 0.6
        moments = chance.randint(1, 48 if is_short else MOMENTS_MAX + 10 * killed)
        if seed == "0":
            moments = 2 * (killed + 1)  # even: those between two lines do not count
        child = os.fork()
        if child == 0:
            live(url, folder, moments)
            os._exit(0)
        how = os.waitpid(child, 0)[1]
        if how == 0:
            break
        assert os.WTERMSIG(how) == signal.SIGKILL, "a life ended by an error"
        killed += 1
    last = Desk(url, folder)
    done = last.get(made)
    with_rows = [row[0] for row in last.sql("SELECT name FROM files")]
    seen = {
        "killed": killed,
        "counts": counts(done),
        "answers": [answer["custom_id"] for answer in last.content(done.output_file)],
        "rows": len(last.rows()),
        "files": len(list(folder.iterdir())) if last.database.is_sqlite else len(with_rows),
        "files_with_rows": sum(last.files.path(name).is_file() for name in with_rows),
    }
    last.close()
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
