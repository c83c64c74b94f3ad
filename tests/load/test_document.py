"""The JSON document of a run."""

from __future__ import annotations

import random

import msgspec

from forebay.load.document import Document, encode

from .making import failed, made, ok


def run(seed: int) -> Document:
    source = random.Random(seed)
    found = [ok(i / 40, source.uniform(0.5, 1.5)) for i in range(400)]
    for i in range(3):
        found[i * 133] = failed(i * 10 / 3)
    return made(found, messages={"queue_full": "full"})


def test_a_document_is_the_same_after_writing_and_reading() -> None:
    text = encode(run(1))
    assert msgspec.json.decode(text, type=Document) == run(1)
    assert text == encode(run(1))


def test_a_long_run_is_written_in_part_and_summed_up_in_whole() -> None:
    source = random.Random(1)
    times = sorted(source.uniform(0, 10) for _ in range(45_000))
    long = made([ok(at_s, 1.0) for at_s in times])
    assert (long.samples.step, len(long.samples.rows)) == (3, 15_000)
    assert long.summary.all.ok == 45_000
