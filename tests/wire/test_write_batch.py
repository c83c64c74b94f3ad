"""Small writes are made at the end of a turn of the loop: all of them, in order."""

from __future__ import annotations

import asyncio

from forebay.wire.write_batch import SMALL_BYTES, WriteBatch, write_batch


class Written:
    """A connection that remembers what was written, into a list that several share."""

    def __init__(self, name: str, written: list[tuple[str, bytes]]) -> None:
        self._name = name
        self._written = written

    def write_now(self, data: bytes) -> None:
        self._written.append((self._name, data))


def writers() -> tuple[WriteBatch, Written, Written, list[tuple[str, bytes]]]:
    written: list[tuple[str, bytes]] = []
    return write_batch(), Written("a", written), Written("b", written), written


async def test_what_is_small_is_written_in_order_when_the_turn_ends() -> None:
    batch, first, second, written = writers()
    batch.write(first, b"1")
    batch.write(second, b"2")
    batch.write(first, b"3")
    assert written == []
    await asyncio.sleep(0)
    assert written == [("a", b"1"), ("b", b"2"), ("a", b"3")]


async def test_what_one_connection_writes_in_a_row_is_one_write() -> None:
    batch, first, _, written = writers()
    batch.write(first, b"1")
    batch.write(first, b"2")
    await asyncio.sleep(0)
    assert written == [("a", b"12")]


async def test_what_is_large_is_written_at_once_behind_what_was_before() -> None:
    batch, first, second, written = writers()
    batch.write(first, b"1")
    large = b"x" * (SMALL_BYTES + 1)
    batch.write(second, large)
    assert written == [("a", b"1"), ("b", large)]
    await asyncio.sleep(0)
    assert len(written) == 2


async def test_what_is_written_while_others_are_written_is_written_too() -> None:
    batch, first, second, written = writers()

    class Answering(Written):
        def write_now(self, data: bytes) -> None:
            super().write_now(data)
            batch.write(second, b"answer")

    batch.write(Answering("c", written), b"1")
    batch.write(first, b"2")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert written == [("c", b"1"), ("a", b"2"), ("b", b"answer")]
