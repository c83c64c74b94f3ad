"""Standard output and error that never block, and the formats of the gateway's own log.

A pipe that nobody reads, a stopped terminal or a full disk must not hold up the event loop. So each
of the two streams has a buffer with a bound, and a thread of its own that writes it: one alone
could not write the access log while nobody reads the errors. The descriptors stay blocking, because
other programs share them. Lines that do not fit are dropped; `forebay_log_lines_dropped_total`
counts them, and so does `lines_dropped` of the next line that is written.
"""

from __future__ import annotations

import io
import logging
import os
import select
import stat
import sys
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    Lines: TypeAlias = bytes | Callable[[], bytes]

BUFFER_BYTES = 4 * 2**20  # what may wait to be written to one stream
LINE_BYTES = 256  # what a line counts for that is encoded by the thread
CLOSE_S = 1.0  # how long the last lines may take
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the `extra` of the caller."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {k: v for k, v in record.__dict__.items() if k not in _STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=repr).decode()


class ShortFormatter(logging.Formatter):
    """`12:34:56 node is online node=gpu1`."""

    def format(self, record: logging.LogRecord) -> str:
        more = " ".join(f"{k}={v}" for k, v in record.__dict__.items() if k not in _STANDARD)
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.getMessage()} {more}".rstrip()
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class Outlet:
    """Lines on their way to one stream. `put` never waits, and may be called from any thread."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._lock = threading.RLock()  # also for a signal's handler
        self._waiting: SimpleQueue[tuple[Lines, int, int] | None] = SimpleQueue()
        self._waiting_bytes = 0
        self._thread: threading.Thread | None = None
        self._reported = self._got_through = 0  # of those dropped: in lines, and in written ones
        self.dropped = 0

    def put(self, data: Lines, lines: int) -> None:
        """Have lines written, or drop them where too many wait; the thread calls a function."""
        size = len(data) if isinstance(data, bytes) else lines * LINE_BYTES
        with self._lock:
            if self._waiting_bytes >= BUFFER_BYTES:
                self.dropped += lines
                return
            self._waiting_bytes += size
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
                self._thread.start()
        self._waiting.put((data, lines, size))

    def unreported(self) -> int:
        """Return how many dropped lines the next line is to count; 0 while it has no room."""
        if self._waiting_bytes >= BUFFER_BYTES:
            return 0
        before, self._reported = self._reported, self.dropped
        return self._reported - before

    def close(self) -> None:
        """Write what is left, within a limit, and end the thread; may be called twice."""
        self._waiting.put(None)
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            data, lines, size = item
            lost = 0
            try:
                self._write(data if isinstance(data, bytes) else data())
            except Exception:  # closed, or no space: requests matter more than lines
                lost = lines
            with self._lock:
                self.dropped += lost
                if lost:  # with what they reported
                    self._reported = self._got_through
                else:
                    self._got_through = self._reported
                self._waiting_bytes -= size


class OutletStream(io.FileIO):
    """A standard stream for whoever prints, without its waits."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._is_torn = False  # the last line is there in part: the disk was full
        self.outlet = Outlet(self._write_lines)

    def write(self, data: Any, /) -> int:
        self.outlet.put(bytes(data), max(1, data.count(b"\n")))
        return len(data)

    def _write_lines(self, data: bytes) -> None:
        """Write all, to a pipe in pieces that the kernel keeps together: others share it."""
        is_pipe = stat.S_ISFIFO(os.fstat(self.fileno()).st_mode)
        data, start = b"\n" * self._is_torn + data, 0
        try:
            while start < len(data):
                most = start + select.PIPE_BUF if is_pipe else len(data)
                end = data.rfind(b"\n", start, most) + 1 or len(data)
                start += os.write(self.fileno(), data[start:end])
        finally:
            if start:
                self._is_torn = start < len(data) and data[start - 1 : start] != b"\n"


_streams: dict[str, tuple[Any, OutletStream]] = {}
"""Standard output and error of this process by name: as they were before, and as they are."""


def outlet_of(name: str) -> Outlet:
    """Return the outlet of `stdout` or `stderr`, once `set_up_logging` has made it."""
    return _streams[name][1].outlet


def lines_dropped() -> int:
    """Return how many lines of this process were dropped."""
    return sum(stream.outlet.dropped for _, stream in _streams.values())


def set_up_logging() -> None:
    """Log to stderr: JSON, or short lines where it is a terminal. Nothing printed waits any more.

    After a fork it must be called again: the thread of a stream stays with the parent.
    """
    for name in ("stdout", "stderr"):
        before = getattr(sys, name)
        before.flush()
        stream = OutletStream(before.fileno())
        _streams[name] = before, stream
        text = io.TextIOWrapper(stream, before.encoding, before.errors, line_buffering=True)
        setattr(sys, name, text)
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_count_dropped)
    handler.setFormatter(ShortFormatter() if sys.stderr.isatty() else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


def _count_dropped(record: logging.LogRecord) -> bool:
    if dropped := outlet_of("stderr").unreported():
        record.__dict__["lines_dropped"] = dropped
    return True


def close_streams() -> None:
    """Write what is left, within a limit; what is printed later waits for its reader again."""
    for name, (before, stream) in _streams.items():
        getattr(sys, name).flush()
        stream.outlet.close()
        setattr(sys, name, before)
