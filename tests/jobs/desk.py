"""Everything about batches in one place, for the tests: a store, its files, and the steps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from forebay.jobs.batches import steps as batch_steps
from forebay.jobs.batches.batch import NewBatch
from forebay.jobs.batches.files import Files
from forebay.jobs.batches.service import BatchService
from forebay.jobs.batches.steps import BatchSteps, Interrupted
from forebay.jobs.job import Failure
from forebay.jobs.store.job_store import JobStore
from forebay.jobs.store.schema import JOBS
from forebay.storage.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from forebay.jobs.batches.batch import StoredBatch
    from forebay.jobs.batches.file import StoredFile
    from forebay.jobs.job import Change, StoredJob

CHAT = "/v1/chat/completions"


def line(custom_id: str, model: str = "m", **body: Any) -> dict[str, Any]:
    asked = {"model": model, "messages": [{"role": "user", "content": custom_id}], **body}
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": asked}


def jsonl(lines: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


def answer_of(job: StoredJob) -> str:
    """What a node would say: what it was asked, so that a mix-up shows."""
    said = json.loads(job.params)["messages"][0]["content"]
    body = {"choices": [{"message": {"content": said}}]}
    return json.dumps({"status_code": 200, "request_id": f"r-{said}", "body": body})


class Desk:
    """One gateway's view of a database."""

    def __init__(
        self,
        url: str,
        folder: Path | None,
        keeper: str = "k1",
        may_use: Callable[[str, str], bool] = lambda owner, model: True,
    ) -> None:
        self.database = Database(url, JOBS)
        self.database.open()
        self.store = JobStore(self.database)
        self.files = Files(self.database, folder)
        self.files.open()
        self.batches = BatchService(self.store)
        self.aborted: list[int] = []
        self.store.changes.listeners.append(self._hear)
        self.steps = BatchSteps(self.batches, self.files, may_use, keeper)

    def close(self) -> None:
        self.database.close()

    def _hear(self, change: Change) -> None:
        """Note what a worker would have to stop: what was ended while it ran, by others."""
        if change.before == "running" and change.status in ("cancelled", "failed"):
            self.aborted.append(change.id)

    # -- what callers do

    def upload(self, data: bytes, owner: str = "", purpose: str = "batch") -> StoredFile:
        upload = self.files.begin()
        upload.write(data)
        return self.files.store(upload, owner, "input.jsonl", purpose)

    def create(self, lines: Iterable[dict[str, Any]] | bytes, owner: str = "") -> StoredBatch:
        data = lines if isinstance(lines, bytes) else jsonl(lines)
        return self.batches.create(owner, NewBatch(self.upload(data, owner).name, CHAT))

    def get(self, batch: StoredBatch) -> StoredBatch:
        found = self.batches.get(batch.name, batch.owner).result()
        assert found is not None
        return found

    def content(self, name: str | None) -> list[dict[str, Any]]:
        assert name is not None
        with self.files.read(name) as file:
            return [json.loads(one) for one in file.read().splitlines()]

    # -- what a gateway does

    def move_on(self) -> None:
        """Do whatever is due, as a keeper would, until nothing is."""
        while due := self.steps.due().result()[0]:
            for batch_id in due:
                self.steps.advance(batch_id)

    def claim(self, limit: int = 1, queue: str = "model:m") -> list[StoredJob]:
        return self.store.claim(queue, "w1", 60.0, limit).result()

    def run(self, limit: int | None = None, queue: str = "model:m") -> int:
        """Run lines, well; return how many."""
        done = 0
        while limit is None or done < limit:
            taken = self.claim(min(256, 256 if limit is None else limit - done), queue)
            if not taken:
                return done
            ended = [self.store.complete(job, answer_of(job)) for job in taken]
            assert all(one.result() for one in ended)
            done += len(taken)
        return done

    def fail(self, code: str = "node_failed", result: str | None = None) -> None:
        (job,) = self.claim()
        assert self.store.fail(job, Failure("it went wrong", code, result=result)).result()

    # -- what tests look at

    def sql(self, statement: str, **values: Any) -> list[Any]:
        def work(connection: Any) -> list[Any]:
            done = connection.execute(text(statement), values)
            return list(done) if done.returns_rows else []

        return self.database.write(work).result()

    def rows(self) -> list[tuple[str, int, str]]:
        found = self.sql("SELECT custom_id, line, status FROM jobs ORDER BY line")
        return [(row[0], row[1], row[2]) for row in found]

    def stop_while_loading(self, total: int, chunks: int) -> StoredBatch:
        """Make a batch, and stop after so many chunks of it are rows."""
        made = self.create([line(f"c{i}") for i in range(total)])
        seen = 0

        def count(change: Change) -> None:
            nonlocal seen
            seen += 1
            if seen == chunks * batch_steps.CHUNK_LINES:
                self.steps.stopping.set()

        self.store.changes.listeners.append(count)
        try:
            self.move_on()
        except Interrupted:
            pass
        else:
            raise AssertionError("it did not stop")
        self.store.changes.listeners.remove(count)
        return made

    def expire(self, batch: StoredBatch) -> None:
        """Let its time be up."""
        self.sql("UPDATE batches SET expires_at = created_at - 1 WHERE id = :id", id=batch.id)


def counts(found: StoredBatch) -> tuple[str, int, int, int]:
    return found.status, found.total, found.completed, found.failed
