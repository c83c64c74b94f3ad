"""What is small is taken when a turn of the loop has read all, and written at its end, in order."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from forebay.wire.io_batch import (
    AT_ONCE,
    AT_ONCE_MAX,
    BATCHED_BYTES,
    BatchedConnection,
    IoBatch,
    io_batch,
)

pytestmark = pytest.mark.interpreted("nothing inherits from a compiled connection that is not")


class Written(BatchedConnection):
    """A connection that remembers what was taken and written, into a list that several share."""

    def __init__(self, name: str, written: list[tuple[str, bytes]]) -> None:
        super().__init__()
        self._name = name
        self._written = written

    def take(self, data: bytes) -> None:
        self._written.append((f"{self._name} read", data))
        self.batch.write(self, b"to " + data)

    def write_now(self, data: bytes) -> None:
        self._written.append((self._name, data))


class Answering(Written):
    """Has another connection write when it writes itself."""

    def __init__(self, name: str, written: list[tuple[str, bytes]], other: Written) -> None:
        super().__init__(name, written)
        self._other = other

    def write_now(self, data: bytes) -> None:
        super().write_now(data)
        self.batch.write(self._other, b"answer")


def writers() -> tuple[IoBatch, Written, Written, list[tuple[str, bytes]]]:
    written: list[tuple[str, bytes]] = []
    return io_batch(), Written("a", written), Written("b", written), written


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


async def test_after_a_write_that_was_alone_in_its_turn_some_are_made_at_once() -> None:
    batch, first, second, written = writers()
    batch.write(first, b"alone")
    await asyncio.sleep(0)
    written.clear()
    for number in range(AT_ONCE):
        batch.write(second, b"%d" % number)
        assert written[-1] == ("b", b"%d" % number)
    batch.write(second, b"waits")
    batch.write(first, b"too")
    assert len(written) == AT_ONCE
    await asyncio.sleep(0)
    assert written[AT_ONCE:] == [("b", b"waits"), ("a", b"too")]
    batch.write(first, b"as this, after a turn with two")
    assert len(written) == AT_ONCE + 2


async def test_while_writes_come_alone_ever_more_are_made_at_once_up_to_a_bound() -> None:
    batch, first, second, written = writers()

    async def made_at_once() -> int:
        """Write until one has to wait, and let it: it is alone in its turn."""
        before = len(written)
        for count in range(2 * AT_ONCE_MAX):
            batch.write(first, b"x")
            if len(written) == before + count:
                await asyncio.sleep(0)
                return count
        raise AssertionError("nothing waits")

    counts = [await made_at_once() for _ in range(7)]
    assert counts == [0, *(AT_ONCE * 2**time for time in range(5)), AT_ONCE_MAX]
    for _ in range(AT_ONCE_MAX):
        batch.write(first, b"x")
    for writer in (first, second):
        batch.write(writer, b"one of two in their turn")
    await asyncio.sleep(0)
    assert [await made_at_once() for _ in range(2)] == [0, AT_ONCE]


async def test_nothing_is_written_at_once_while_others_are_written() -> None:
    batch, first, second, written = writers()

    batch.write(first, b"alone")
    await asyncio.sleep(0)
    Answering("c", written, second).data_received(b"1")
    second.data_received(b"2")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert written[-3:] == [("c", b"to 1"), ("b", b"to 2"), ("b", b"answer")]


async def test_what_is_large_is_written_at_once_behind_what_was_before() -> None:
    batch, first, second, written = writers()
    batch.write(first, b"1")
    large = b"x" * (BATCHED_BYTES + 1)
    batch.write(second, large)
    assert written == [("a", b"1"), ("b", large)]
    await asyncio.sleep(0)
    assert len(written) == 2


async def test_what_is_written_while_others_are_written_is_written_too() -> None:
    batch, first, second, written = writers()

    batch.write(Answering("c", written, second), b"1")
    batch.write(first, b"2")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert written == [("c", b"1"), ("a", b"2"), ("b", b"answer")]


async def test_all_that_was_read_in_a_turn_is_taken_and_then_all_answers_are_written() -> None:
    _, first, second, written = writers()
    first.data_received(b"1")
    second.data_received(b"2")
    assert written == []
    await asyncio.sleep(0)
    assert written == [("a read", b"1"), ("b read", b"2"), ("a", b"to 1"), ("b", b"to 2")]


async def test_what_is_large_is_taken_at_once_behind_what_its_connection_read_before() -> None:
    _, first, _, written = writers()
    first.data_received(b"1")
    large = b"x" * (BATCHED_BYTES + 1)
    first.data_received(large)
    assert written == [("a read", b"1" + large), ("a", b"to 1" + large)]
    await asyncio.sleep(0)
    assert len(written) == 2


async def test_one_that_fails_with_what_it_read_keeps_no_other_from_its_own() -> None:
    batch, first, _, written = writers()

    class Failing(Written):
        def take(self, data: bytes) -> None:
            raise ValueError

        def abort(self) -> None:
            written.append(("aborted", b""))

    Failing("c", written).data_received(b"1")
    first.data_received(b"2")
    batch.write(first, b"3")
    await asyncio.sleep(0)
    assert written == [("aborted", b""), ("a read", b"2"), ("a", b"3to 2")]


class Interrupted(BaseException):
    """As a signal does it: nobody on the way catches this."""


async def test_what_is_written_after_a_turn_that_was_interrupted_is_written() -> None:
    batch, first, _, written = writers()

    class Interrupting(Written):
        def take(self, data: bytes) -> None:
            self.batch.write(first, b"1")
            raise Interrupted

    reader = Interrupting("c", written)
    reader.unread = b"x"
    batch._unread.append(reader)
    with pytest.raises(Interrupted):
        batch.take()
    assert written == [("a", b"1")]
    batch.write(first, b"2")
    await asyncio.sleep(0)
    assert written == [("a", b"1"), ("a", b"2")]


async def test_connections_of_a_loop_share_its_batch() -> None:
    assert io_batch() is io_batch()


def test_loops_that_have_ended_are_not_kept() -> None:
    loops = []

    async def use() -> None:
        io_batch()
        loops.append(weakref.ref(asyncio.get_running_loop()))

    for _ in range(5):
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(use())
    del runner
    gc.collect()
    assert sum(loop() is not None for loop in loops) <= 1
