"""Rows of the batches table as values."""

from __future__ import annotations

from typing import Any

from forebay.jobs.batches.batch import Batch
from forebay.jobs.store.schema import batches

COLUMNS = [batches.c[name] for name in Batch.__struct_fields__]


def to_batch(row: Any) -> Batch:
    """Return a row of `COLUMNS` as a batch."""
    return Batch(**row._mapping)
