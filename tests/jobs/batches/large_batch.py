"""A program of its own that runs a batch of 50 MB in so many lines, and says what that took."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from forebay.jobs.batches.batch import NewBatch

from ..desk import CHAT, Desk, counts, line


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(url: str, folder: str, lines: str) -> None:
    pad = 52_000_000 // int(lines)
    desk = Desk(url, Path(folder))
    upload = desk.files.begin()
    for i in range(int(lines)):
        upload.write(json.dumps(line(f"c{i}", pad="x" * pad)).encode() + b"\n")
    file = desk.files.store(upload, "", "input.jsonl", "batch")
    before = peak_bytes()
    made = desk.batches.create("", NewBatch(file.name, CHAT))
    desk.move_on()
    result = json.dumps({"status_code": 200, "request_id": "r", "body": "y" * pad})
    desk.sql("UPDATE jobs SET status = 'completed', result = :result", result=result)
    desk.sql("UPDATE batches SET completed = total")
    desk.move_on()
    grown = peak_bytes() - before
    done = desk.get(made)
    with desk.files.path(str(done.output_file)).open("rb") as output:
        in_order = all(json.loads(text)["custom_id"] == f"c{i}" for i, text in enumerate(output))
    sys.stdout.write(
        json.dumps(
            {
                "counts": counts(done),
                "in_order": in_order,
                "input_bytes": file.bytes,
                "grown_bytes": grown,
            }
        )
    )
    desk.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
