"""The store by itself: taking in, claiming beside what is finished, starting with many queued."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from sqlalchemy import insert, text

from forebay.jobs.job import NewJob
from forebay.jobs.store.job_store import JobStore
from forebay.jobs.store.schema import JOBS, jobs
from forebay.storage.database import Database

BATCH = 500
CLAIMS = 300


def opened(folder: Path, name: str = "jobs.db") -> JobStore:
    database = Database(f"sqlite:///{folder}/{name}", JOBS)
    database.open()
    return JobStore(database)


def letters(start: int, count: int) -> list[NewJob]:
    body = '{"model":"m","messages":[{"role":"user","content":"%d %s"}]}'
    return [
        NewJob("chat", body % (n, "x" * 200), queue="model:m", model="m")
        for n in range(start, start + count)
    ]


def submit_in_batches(count: int = 10_000) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        store = opened(Path(folder))
        groups = [letters(n, BATCH) for n in range(0, count, BATCH)]
        began_s = time.perf_counter()
        for group in groups:
            store.add(group).result()
        took_s = time.perf_counter() - began_s
        store.database.close()
    return {"jobs_per_s": count / took_s, "batch": BATCH}


def submit_by_many(count: int = 3000, at_once: int = 32) -> dict[str, float]:
    """One job a call, several calls under way: what group commit is for."""
    with tempfile.TemporaryDirectory() as folder:
        store = opened(Path(folder))
        new = letters(0, count)
        began_s = time.perf_counter()
        for start in range(0, count, at_once):
            for future in [store.add([job]) for job in new[start : start + at_once]]:
                future.result()
        took_s = time.perf_counter() - began_s
        alone = letters(count, 500)
        began_s = time.perf_counter()
        for job in alone:
            store.add([job]).result()
        alone_s = time.perf_counter() - began_s
        store.database.close()
    return {"jobs_per_s": count / took_s, "at_once": at_once, "alone_per_s": 500 / alone_s}


def claim_beside(finished: int) -> dict[str, float]:
    """Claim and complete, one by one, beside so many rows that are finished."""
    with tempfile.TemporaryDirectory() as folder:
        store = opened(Path(folder))
        _finish(store, finished)
        store.add(letters(0, CLAIMS)).result()
        times_us = []
        for _ in range(CLAIMS):
            began_s = time.perf_counter()
            (job,) = store.claim("model:m", "w", 30.0).result()
            store.complete(job, '{"choices":[]}').result()
            times_us.append((time.perf_counter() - began_s) * 1e6)
        store.database.close()
    return {"finished": finished, "median_us": median(times_us), "best_us": min(times_us)}


def _finish(store: JobStore, count: int) -> None:
    row: dict[str, Any] = {
        "task_type": "chat", "queue": "model:m", "owner": "", "job_id": 0, "params": "{}",
        "priority": 1, "model": "m", "status": "completed", "result": '{"choices":[]}',
        "created_at": 1.0, "finished_at": 2.0,
    }  # fmt: skip

    def fill(connection: Any) -> None:
        for start in range(0, count, 10_000):
            rows = [row | {"fingerprint": f"f{n}"} for n in range(start, start + 10_000)]
            connection.execute(insert(jobs), rows)

    store.database.write(fill).result()
    store.database.write(lambda connection: connection.execute(text("ANALYZE")).rowcount).result()


def start_with(queued: int = 100_000) -> dict[str, float]:
    """Open a database with so many queued, and know what each queue holds; memory beside it."""
    with tempfile.TemporaryDirectory() as folder:
        store = opened(Path(folder))
        for n in range(0, queued, 5000):
            store.add(letters(n, 5000)).result()
        store.database.close()
        before = resident_mib()
        began_s = time.perf_counter()
        store = opened(Path(folder))
        depths = store.depths().result()
        store.counts().result()
        first = store.claim("model:m", "w", 30.0).result()
        took_s = time.perf_counter() - began_s
        grown = resident_mib() - before
        store.database.close()
    assert depths == {"model:m": queued}
    assert len(first) == 1
    return {"queued": queued, "seconds": took_s, "grown_mib": grown}


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1_048_576
